"""What everybody knows about a table before seeing a row: its schema, and features by it."""

from permea.tables.columns import Category, Column, Date, Number, YesNo
from permea.tables.encoding import TableEncoder, default_bins
from permea.tables.formats import check_schema, draft
from permea.tables.reading import read_chunks
from permea.tables.schema import Schema

__all__ = [
    "Category",
    "Column",
    "Date",
    "Number",
    "Schema",
    "TableEncoder",
    "YesNo",
    "check_schema",
    "default_bins",
    "draft",
    "read_chunks",
]
