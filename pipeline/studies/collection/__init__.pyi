from .collections import describe_data as describe_data, export_data as export_data
from .description import describe as describe
from .tables import collection_view as collection_view
