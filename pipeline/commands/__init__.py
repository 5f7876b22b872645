"""What does each command do? A module for each kind of thing people do; `pipeline.cli` lists them all."""
