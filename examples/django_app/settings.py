"""What Django needs to know."""

SECRET_KEY = "only for this example"  # noqa: S105 - it protects nothing
DEBUG = True
ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
ROOT_URLCONF = "app"
USE_TZ = True
# A view's changes and the tasks it enqueues become real together, when it has returned.
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "site.db", "ATOMIC_REQUESTS": True}}
INSTALLED_APPS = ["django_tasks", "holdfast.contrib.django"]  # without "django_tasks" from Django 6 on
TASKS = {
    "default": {
        "BACKEND": "holdfast.contrib.django.HoldfastBackend",
        "QUEUES": ["default", "pictures"],
        "OPTIONS": {"store": "sqlite:jobs.db", "max_attempts": 3},
    }
}
