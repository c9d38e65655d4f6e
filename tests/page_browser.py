"""A headless browser for tests of pages: opens a page, runs scripts in it, presses keys.

It speaks the browser's protocol for developers over a pair of pipes. A request to the outside, a message on the
console or an error of a script is a failure. A page is a file, or the address of one that a server of the test has.
"""

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
import tempfile

KEYS = {"+": ("+", "Equal", 187), "-": ("-", "Minus", 189), "0": ("0", "Digit0", 48), "Tab": (None, "Tab", 9),
        "ArrowLeft": (None, "ArrowLeft", 37), "ArrowRight": (None, "ArrowRight", 39)}  # fmt: skip
SHIFT = 8


def browser():
    """The program of a headless browser, or a failure: the setup of the tests installs one."""
    names = ("chromium-headless-shell", "chromium", "google-chrome")
    found = next((path for name in names if (path := shutil.which(name))), None)
    assert found, "no headless browser: install chromium-headless-shell"
    return found


class Page:
    """An open page."""

    def __init__(self, to, back):
        self.to, self.back = to, back
        self.number, self.session, self.complaints, self.loaded = 0, None, [], set()
        # The server of a page that is served; None for a file.
        self.site = None

    def call(self, method, **parameters):
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        self.to.write(json.dumps(message).encode() + b"\0")
        self.to.flush()
        while True:
            answer = self.next()
            if answer.get("id") == self.number:
                assert "error" not in answer, answer
                return answer["result"]

    def next(self):
        text = bytearray()
        while (byte := self.back.read(1)) != b"\0":
            assert byte, "the browser ended"
            text += byte
        event = json.loads(text)
        method, parameters = event.get("method"), event.get("params", {})
        if method in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded"):
            self.complaints.append(parameters)
        own = ("file:", "blob:", self.site or "file:")
        if method == "Network.requestWillBeSent" and not parameters["request"]["url"].startswith(own):
            self.complaints.append(parameters["request"]["url"])
        return event

    def open(self, page, dark=False, width=1400, ready="window.seekCharts"):
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "Accessibility"):
            self.call(f"{domain}.enable")
        self.call("Performance.enable", timeDomain="threadTicks")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=1000, deviceScaleFactor=1, mobile=False)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.site = "/".join(page.split("/")[:3]) if isinstance(page, str) else None
        self.call("Page.navigate", url=page if self.site else page.resolve().as_uri())
        look = f"const look = () => {ready} ? done(1) : setTimeout(look, 5)"
        self.run(f"new Promise((done) => {{ {look}; look(); }})")

    def run(self, script):
        """The value of an expression, waited for if it is a promise."""
        answer = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def accessible(self):
        """The role and the name of every node that a screen reader meets."""
        nodes = self.call("Accessibility.getFullAXTree")["nodes"]
        value = lambda node, field: node.get(field, {}).get("value", "")  # noqa: E731
        return [(value(node, "role"), value(node, "name")) for node in nodes if not node.get("ignored")]

    def press(self, key, shift=False):
        text, code, number = KEYS[key]
        modifiers = SHIFT if shift else 0
        event = {"key": key, "code": code, "windowsVirtualKeyCode": number, "modifiers": modifiers}
        self.call("Input.dispatchKeyEvent", type="keyDown", **event, **({"text": text} if text else {}))
        self.call("Input.dispatchKeyEvent", type="keyUp", **event)
        # What a key changes is drawn in the next frame.
        self.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")


def raised(descriptor):
    """A copy of a descriptor with a number that no other program expects; the descriptor itself is closed."""
    copy = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 100)
    os.close(descriptor)
    return copy


@contextlib.contextmanager
def opened(page, **options):
    """The page in a browser; complaints of the browser are failures at the end."""
    commands, to_browser = os.pipe()
    from_browser, answers = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        flags = "--no-sandbox --disable-gpu --headless --remote-debugging-pipe --no-first-run --disable-dev-shm-usage"
        command = [browser(), *flags.split(), f"--user-data-dir={profile}"]
        # The browser reads commands from descriptor 3 and answers through 4, which may be taken here.
        commands, answers = (raised(descriptor) for descriptor in (commands, answers))

        def place():
            os.dup2(commands, 3)
            os.dup2(answers, 4)

        process = subprocess.Popen(command, pass_fds=(3, 4), preexec_fn=place, stderr=subprocess.DEVNULL)
        os.close(commands)
        os.close(answers)
        try:
            with open(to_browser, "wb") as to, open(from_browser, "rb") as back:
                shown = Page(to, back)
                shown.open(page, **options)
                yield shown
                assert not shown.complaints, shown.complaints
                shown.session = None
                shown.call("Browser.close")
                process.wait(timeout=60)
        finally:
            process.kill()
            process.wait()
