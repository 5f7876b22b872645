"""A page of HTML as a tree."""

from html.parser import HTMLParser
from xml.etree.ElementTree import Element, TreeBuilder

VOID = ("meta", "link", "input", "br", "wbr", "img")


class _Reader(HTMLParser):
    """Builds the tree; every element must end where its own end stands."""

    def __init__(self) -> None:
        super().__init__()
        self.builder, self.open = TreeBuilder(), 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.builder.start(tag, {name: value or "" for name, value in attrs})
        self.open += 1
        if tag in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.builder.end(tag).tag == tag
        self.open -= 1

    def handle_data(self, data: str) -> None:
        if self.open:
            self.builder.data(data)


def tree(page: str) -> Element:
    """The root of a page, of which every element has an end."""
    reader = _Reader()
    reader.feed(page)
    reader.close()
    assert reader.open == 0
    return reader.builder.close()
