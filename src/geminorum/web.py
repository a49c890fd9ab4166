"""The page of `geminorum web` as an ASGI app, to serve or to mount in a program of your own.

```python
page = geminorum.web.app(token="…")


@asynccontextmanager
async def lifespan(_):
    async with page.running():  # ends its runs, too
        yield


site = FastAPI(lifespan=lifespan)
site.mount("/agents", page)
```

`pip install 'geminorum[web]'` brings what it needs.
"""

from geminorum.errors import SetupError

try:
    from geminorum.apps.web.application import WebApp, app
    from geminorum.apps.web.settings import WebSettings
except ImportError as error:
    if (error.name or "").startswith("geminorum"):
        raise
    raise SetupError(
        f"the page needs {error.name}, which is not installed",
        hint="install it: pip install 'geminorum[web]'",
    ) from error

__all__ = ["WebApp", "WebSettings", "app"]
