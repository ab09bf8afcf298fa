"""Takes the items of a request in: noted, then checked against what the model can do, then counted.

The order is the contract's, the same for every route of items. Knows nothing of bodies.
"""

from collections.abc import Callable

from infinity_v3.server.call import BodyT, Call
from infinity_v3.server.errors import unsupported_task
from infinity_v3.server.items import Items, ItemT
from infinity_v3.server.replies import accept_items


def take_in(
    call: Call[BodyT],
    items: Items[ItemT],
    check_task: Callable[[], None],
    *,
    field: str = "inputs",
    is_scoring: bool = False,
) -> Items[ItemT]:
    """Accept items that the model can work on.

    Args:
        call: the request.
        items: what it holds.
        check_task: raises where the model cannot do what is asked.
        field: the route's name for the items.
        is_scoring: the items are predictions rather than vectors.

    Raises:
        HttpError: 424 or 422.
        InferenceError: 424.
    """
    accept_items(call, items, is_scoring=is_scoring)
    check_task()
    if items.has_conversations:
        call.model.service.check_can_converse()
    if items.has_images:
        raise no_images()
    call.budget.take(items.num_items, field)
    return items


def no_images() -> Exception:
    """The 424 for an image."""
    return unsupported_task("the artifact takes no images")
