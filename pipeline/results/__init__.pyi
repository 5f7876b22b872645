from .exchange import model_index as model_index
from .exchange import task_of as task_of
from .exchange import write_mteb as write_mteb
from .folder import Result as Result
from .folder import SavedResult as SavedResult
from .folder import read_result as read_result
from .lint import lint_files as lint_files
from .published import read_published as read_published
from .records import Manifest as Manifest
from .records import Metrics as Metrics
from .records import Used as Used
from .suite_folder import (
    SavedSuite as SavedSuite,
)
from .suite_folder import (
    SuiteRecord as SuiteRecord,
)
from .suite_folder import (
    SuiteResult as SuiteResult,
)
from .suite_folder import (
    read_suite_result as read_suite_result,
)
from .tables import (
    result_table as result_table,
)
from .tables import (
    section_tables as section_tables,
)
from .tables import (
    stage_table as stage_table,
)
from .tables import (
    summary_table as summary_table,
)
