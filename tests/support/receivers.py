"""Receivers of items' ends, for tests of what comes before them."""

from infinity_v3.runtime.work import ItemFailure, Row, WorkItem


class Nobody:
    """Waits for no item."""

    def item_done(
        self, item: WorkItem, row: Row, *, queue_s: float, inference_s: float
    ) -> None: ...

    def item_failed(self, item: WorkItem, failure: ItemFailure) -> None: ...

    def item_expired(self, item: WorkItem) -> None: ...

    def item_dropped(self, item: WorkItem) -> None: ...
