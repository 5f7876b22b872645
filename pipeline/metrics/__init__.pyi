from .betting import (
    STAKES as STAKES,
)
from .betting import (
    Bets as Bets,
)
from .betting import (
    BetsInOrder as BetsInOrder,
)
from .betting import (
    growth as growth,
)
from .betting import (
    log_capital as log_capital,
)
from .crossed import best_without_optimism as best_without_optimism
from .crossed import crossed_mean as crossed_mean
from .evaluation import Evaluation as Evaluation
from .evaluation import evaluate_files as evaluate_files
from .measures import MEASURES as MEASURES
from .measures import Cutoff as Cutoff
from .measures import Definition as Definition
from .names import (
    ALIASES as ALIASES,
)
from .names import (
    COMMON as COMMON,
)
from .names import (
    PARAMETERS as PARAMETERS,
)
from .names import (
    Measure as Measure,
)
from .names import (
    parse_measure as parse_measure,
)
from .names import (
    parse_measures as parse_measures,
)
from .paired import (
    LEVEL as LEVEL,
)
from .paired import (
    SMALLEST as SMALLEST,
)
from .paired import (
    compare_with_rest as compare_with_rest,
)
from .paired import (
    difference_tests as difference_tests,
)
from .paired import (
    holm as holm,
)
from .paired import (
    queries_needed as queries_needed,
)
from .paired import (
    smallest_shown as smallest_shown,
)
from .paired import (
    standings as standings,
)
from .prediction_powered import Sharpened as Sharpened
from .prediction_powered import agreement as agreement
from .prediction_powered import sharpen as sharpen
from .resampling import (
    PERMUTATIONS as PERMUTATIONS,
)
from .resampling import (
    Randomized as Randomized,
)
from .resampling import (
    noninferiority as noninferiority,
)
from .resampling import (
    randomization_test as randomization_test,
)
from .resampling import (
    randomize as randomize,
)
from .resampling import (
    resampled_means as resampled_means,
)
from .scoring import compute_measures as compute_measures
from .scoring import short_rankings as short_rankings
from .statistics import (
    MIN_QUERIES as MIN_QUERIES,
)
from .statistics import (
    by_query as by_query,
)
from .statistics import (
    estimate as estimate,
)
from .statistics import (
    spread_known as spread_known,
)
from .ties import EXPECTED as EXPECTED
from .ties import tie_ranges as tie_ranges
