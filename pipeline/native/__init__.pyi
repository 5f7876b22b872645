from .vectors import (
    Fp32Model as Fp32Model,
)
from .vectors import (
    Fp32Splade as Fp32Splade,
)
from .vectors import (
    PackedModel as PackedModel,
)
from .vectors import (
    network_arrays as network_arrays,
)
from .vectors import (
    network_matrices as network_matrices,
)
