"""The task of answering typed questions. Knows nothing of queues, prompts or HTTP."""

from infinity_v3.runtime.decisions.answers import Answer, make_answer, probabilities_of
from infinity_v3.runtime.decisions.protocol import AnswerPlace, DecisionFormat, Logits
from infinity_v3.runtime.decisions.question import DecideRequest, Question
from infinity_v3.runtime.loading import LoadedModel
from infinity_v3.runtime.pipeline import TextPipeline
from infinity_v3.runtime.results import DecideResult
from infinity_v3.runtime.work import Readout, RowForm


class DecisionTasks:
    """The questions of one model; callers have asked whether it takes any."""

    def __init__(
        self, model: LoadedModel, pipeline: TextPipeline, decisions: DecisionFormat
    ) -> None:
        self._pipeline = pipeline
        self._format = decisions
        self._readout = Readout(output=model.main_output, form=RowForm.READOUTS)

    async def decide(self, request: DecideRequest) -> DecideResult:
        """Answer every question, or raise for the first that cannot be asked."""
        pipeline = self._pipeline
        with pipeline.slot() as started_s:
            encoded = await pipeline.texts.encode_decisions(self._format, request)
            done = await pipeline.run(encoded.sequences, request.schedule, self._readout, started_s)
        rows = done.arrays()
        return DecideResult(
            answers=tuple(
                self._answer(question, place, rows[place.sequence])
                for question, place in zip(request.questions, encoded.places, strict=True)
            ),
            num_input_tokens=encoded.num_input_tokens,
            num_output_tokens=encoded.num_output_tokens,
            item_tokens=done.item_tokens,
            timing=done.timing,
        )

    def _answer(self, question: Question, place: AnswerPlace, rows: Logits) -> Answer:
        p = probabilities_of(place.read(rows), place.temperature)
        native = self._format.native_confidence(question.kind, p)
        return make_answer(question.kind, p, native, is_truncated=place.is_truncated)
