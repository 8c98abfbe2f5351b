"""A site that makes captions for pictures, in the background, with Django's own tasks.

python manage.py runserver
python manage.py holdfast worker
"""

from __future__ import annotations

from django.http import Http404, HttpRequest, JsonResponse
from django.urls import path
from django.views.decorators.csrf import csrf_exempt
from django_tasks import TaskContext, task  # from Django 6 on: from django.tasks import task
from django_tasks.exceptions import TaskResultDoesNotExist


@task(queue_name="pictures", priority=5, takes_context=True)
def caption(context: TaskContext, picture: str) -> str:
    """Pretend to look at a picture; the first look at a blurred one fails, and is tried again."""
    if "blurred" in picture and context.attempt == 1:
        raise ValueError("cannot see it yet")
    return f"{picture}: a cat, seen at attempt {context.attempt}"


@csrf_exempt  # a form of a real site sends its token
def take(request: HttpRequest) -> JsonResponse:
    result = caption.enqueue(request.POST["picture"])
    if request.POST["picture"] == "broken":
        # The request is rolled back, and the task with it: it was to be enqueued on commit.
        raise Http404("no such picture")
    return JsonResponse({"id": result.id}, status=202)


def show(_request: HttpRequest, result_id: str) -> JsonResponse:
    try:
        result = caption.get_result(result_id)
    except TaskResultDoesNotExist:
        raise Http404("no such task") from None
    done = result.return_value if result.status == "SUCCESSFUL" else None
    return JsonResponse({"status": result.status, "caption": done, "attempts": result.attempts})


urlpatterns = [path("captions", take), path("captions/<result_id>", show)]
