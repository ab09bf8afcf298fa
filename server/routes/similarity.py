"""/similarity: one text against others."""

from infinity_v3.runtime.requests import SimilarityRequest
from infinity_v3.server.call import Call, schedule_of
from infinity_v3.server.items import empty_list
from infinity_v3.server.replies import Answer, accept, encoder_for, note_result
from infinity_v3.server.schemas import SimilarityBody, SimilarityInputs, SimilarityParameters
from infinity_v3.server.text_options import text_options

SENTENCES = "inputs.sentences"


async def similarity(call: Call[SimilarityBody]) -> Answer:
    """Cosine of the source and each sentence, in the order of the sentences."""
    body, model = call.body, call.model
    if not body.inputs.sentences:
        raise empty_list(SENTENCES)
    _accept(call, body.inputs)
    model.service.check_can_compare()
    call.budget.take(1 + len(body.inputs.sentences), SENTENCES)
    request = SimilarityRequest(
        source=body.inputs.source_sentence,
        sentences=tuple(body.inputs.sentences),
        options=text_options(body.parameters or SimilarityParameters()),
        schedule=schedule_of(call),
    )
    result = await model.service.similarity(request)
    note_result(call, result)
    return Answer(value=result.scores, encoder=encoder_for(call))


def _accept(call: Call[SimilarityBody], inputs: SimilarityInputs) -> None:
    texts = [inputs.source_sentence, *inputs.sentences]
    accept(call, is_batch=True, num_items=len(texts), num_characters=sum(map(len, texts)))
