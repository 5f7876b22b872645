"""Collections to describe, as the tests of readers load them."""

from data.conftest import loaded as loaded, plain as plain, slice_dl19 as slice_dl19
