"""`/explain`: why a job or an instance is where it is, named in a body: a path cannot carry every id there is."""

from __future__ import annotations

from starlette.responses import Response

from holdfast.engine.workflow_reasons import reason_in
from holdfast.errors import InvalidValue
from holdfast.model.jobs import Job
from holdfast.rules.explain import Reason
from holdfast.stores.http.wire import Explained, Questioned
from holdfast.stores.protocol import View
from holdfast.web.api.endpoint import SEEN, Ask, Endpoint, told
from holdfast.web.api.lookup import found
from holdfast.web.api.paging import NoNamespace
from holdfast.web.api.workflows import found_instance


async def explain(ask: Ask[NoNamespace, Questioned]) -> Response:
    """Say why a job or an instance is where it is."""
    job_id, instance_id = ask.body.job_id, ask.body.instance_id
    if (job_id is None) is (instance_id is None):
        raise InvalidValue("name a job_id or an instance_id, one of the two.", field="job_id")

    def why(view: View) -> Reason:
        if job_id is not None:
            return ask.reasons(view).of(found(ask, view, Job, job_id))
        assert instance_id is not None
        workers = ask.engine.store.workers.all()
        return reason_in(view, found_instance(ask, view, instance_id), ask.now, workers, ask.eyes(view))

    return told(Explained(await ask.look(why)))


ENDPOINTS = (
    Endpoint(
        method="POST",
        path="/explain",
        summary="Say why a job or an instance is where it is.",
        handler=explain,
        query=NoNamespace,
        body=Questioned,
        answers={200: Explained},
        refuses=(404,),
        roles=SEEN,
    ),
)
