from .folder import CollectionResult as CollectionResult
from .records import Manifest as Manifest, Metrics as Metrics, SettingRecord as SettingRecord
from .result import Result as Result, SuiteRecord as SuiteRecord, read_result as read_result
from .tables import (
    result_table as result_table,
    section_tables as section_tables,
    stage_table as stage_table,
    summary_table as summary_table,
)
