"""An object store on this machine: moto's S3 on a free port, whose answers tests replace by faults."""

import threading

import s3fs
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

# Both must never be in what a job writes.
KEY, SECRET = "AKIAOFTHETESTS0000", "a-secret-that-no-file-may-have"
BUCKET = "bucket"


class Silent(WSGIRequestHandler):
    """Logs nothing."""

    def log(self, *_, **__):
        pass


class ObjectStore:
    """The server, and a client that looks at its objects."""

    def __init__(self):
        self._application = DomainDispatcherApplication(create_backend_app)
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True, request_handler=Silent)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.options = {"key": KEY, "secret": SECRET, "endpoint_url": f"http://127.0.0.1:{self._server.port}"}
        self.system = s3fs.S3FileSystem(**self.options, use_listings_cache=False, skip_instance_cache=True)
        # Called with the method and the path of each request; the status of the answer, or None for the real one.
        self.fault = None
        self.requests = []

    def _answer(self, environ, start_response):
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        self.requests.append((method, path, environ.get("HTTP_RANGE")))
        status = self.fault(method, path) if self.fault else None
        if status is None:
            return self._application(environ, start_response)
        # The body has to be read before the answer.
        environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        start_response(status, [("Content-Type", "application/xml")])
        return [b"<Error><Code>InternalError</Code><Message>a fault of the test</Message></Error>"]

    def empty(self):
        """An empty bucket and no faults."""
        self.fault = None
        if self.system.exists(BUCKET):
            for name in self.system.find(BUCKET):
                self.system.rm_file(name)
        else:
            self.system.mkdir(BUCKET)
        self.requests.clear()

    def put(self, name, content):
        self.system.pipe_file(f"{BUCKET}/{name}", content)
        return f"s3://{BUCKET}/{name}"

    def get(self, url):
        return self.system.cat_file(url)

    def names(self, prefix=""):
        """The objects below a prefix, by what follows it."""
        start = len(f"{BUCKET}/{prefix}")
        return sorted(name[start:] for name in self.system.find(f"{BUCKET}/{prefix}"))

    def close(self):
        self._server.shutdown()
