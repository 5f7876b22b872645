from .batch_check import check_batches as check_batches
