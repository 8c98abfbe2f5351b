"""What tests of turns in a worker stand on: an application's definitions and tasks, a real worker, its provider."""

import msgspec

from holdfast import Holdfast
from holdfast.app.tasks.signature_codec import SignatureCodec
from holdfast.model.workflows import event_kinds
from holdfast.model.workflows.history import Status
from holdfast.model.workflows.work_items import ActivityOptions, CancelInstance, QueueMessage, StartOrchestration
from holdfast.workers.worker import Worker
from holdfast.workflows.api.definitions import Definitions
from holdfast.workflows.api.workflow import Register, activity
from holdfast.workflows.provider import Provider

#: Seconds after which a test that hangs is called broken; none waits so long.
LONG = 15


class App:
    """Workflows and activities on one store."""

    def __init__(self, url, clock=None, hf=None):
        self.hf = hf or Holdfast(url, clock=clock)
        self.definitions = Definitions(SignatureCodec)
        self.workflow = Register(self.definitions, SignatureCodec)
        self.workers = []

    def activity(self, function=None, /, *, max_attempts=4):
        """Register a task, and give it as workflows see it."""
        if function is None:
            return lambda given: self.activity(given, max_attempts=max_attempts)
        return self.as_activity(self.hf.task()(function), max_attempts=max_attempts)

    def as_activity(self, task, *, max_attempts=4):
        """Give a task as workflows see it."""
        options = ActivityOptions(max_attempts=max_attempts)
        return activity(task.spec.run, task.spec.codec, name=task.spec.name, options=options)

    @property
    def provider(self):
        return Provider(self.hf.engine)

    def start(self, workflow, *args, instance="i", version=None):
        packed = bytes(workflow.definition.codec.pack(args, {})).decode()
        start = StartOrchestration(instance=instance, orchestration=workflow.name, input=packed, version=version)
        self.provider.enqueue_for_orchestrator(start)
        return instance

    def signal(self, name, data=None, *, instance="i"):
        item = QueueMessage(instance=instance, name=name, data=msgspec.json.encode(data).decode())
        self.provider.enqueue_for_orchestrator(item)

    def cancel(self, reason="stop", *, instance="i", force=False):
        self.provider.enqueue_for_orchestrator(CancelInstance(instance=instance, reason=reason, force=force))

    def worker(self, **options):
        options.setdefault("concurrency", 4)
        made = Worker(self.hf.engine, self.hf.tasks, ("default",), workflows=self.definitions, **options)
        self.workers.append(made)
        return made

    def settle(self, **options):
        """Work until nothing is left to do."""
        worker = self.worker(until_idle=True, **options)
        worker.start()
        assert worker.join(LONG)
        return worker

    def status(self, instance="i"):
        return self.provider.get_instance_info(instance).status

    def end(self, instance="i"):
        return self.provider.read(instance)[-1].kind

    def result(self, instance="i"):
        kind = self.end(instance)
        if isinstance(kind, event_kinds.OrchestrationCompleted):
            return msgspec.json.decode(kind.output)
        assert isinstance(kind, event_kinds.OrchestrationFailed), kind
        return kind.details

    def wait(self, instance="i", status=Status.COMPLETED):
        """Wait until an instance has ended; by the store's feed, not by looking now and then."""
        store = self.hf.engine.store
        while True:
            with self.hf.engine.read() as view:
                seq = view.seq
            if instance in self.provider.list_instances() and self.status(instance) is status:
                return
            assert store.wait(seq, LONG), f"{instance} is {self.status(instance)}"

    def close(self):
        for worker in self.workers:
            worker.stop()
        for worker in self.workers:
            if worker._thread.ident is not None:
                worker.join(LONG)
        self.hf.close()
