from .chunking import cut as cut, cut_texts as cut_texts, word_spans as word_spans
from .collection_files import open_collection as open_collection
from .loading import Identity as Identity, identify as identify, load as load
