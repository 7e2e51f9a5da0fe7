"""A headless browser over the WebDriver protocol, with nothing but the standard library."""

import base64
import json
import shutil
import subprocess
import urllib.error
import urllib.request

from permea.federation.service.deploy import free_port
from permea.federation.service.queue import wait_for

FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    "--disable-dev-shm-usage",
)
_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"


def find_browser():
    """Browser and driver; None where one of them is missing."""
    browser = next((p for n in ("chromium", "google-chrome") if (p := shutil.which(n))), None)
    driver = shutil.which("chromedriver")
    return None if browser is None or driver is None else (browser, driver)


class Browser:
    """One window."""

    def __init__(self, folder, size=(1200, 900)):
        browser, driver = find_browser()
        port = free_port()
        self._base = f"http://127.0.0.1:{port}"
        self._process = subprocess.Popen(
            [driver, f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        wait_for(self._is_up, "the driver of the browser", 120, lambda: None)
        window = f"--window-size={size[0]},{size[1]}"
        options = {
            "binary": browser,
            "args": [*FLAGS, window, f"--user-data-dir={folder / 'profile'}"],
        }
        wanted = {
            "acceptInsecureCerts": True,
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL"},
        }
        made = self._send("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self._session = f"/session/{made['sessionId']}"

    def _is_up(self):
        try:
            return self._send("GET", "/status")["ready"]
        except OSError:
            return False

    def _send(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._base + path, data, method=method)
        try:
            with urllib.request.urlopen(request, timeout=120) as reply:
                return json.load(reply)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(json.load(error)["value"]["message"]) from None

    def open(self, url):
        self._send("POST", self._session + "/url", {"url": url})

    def _find(self, selector):
        body = {"using": "css selector", "value": selector}
        found = self._send("POST", self._session + "/element", body)
        return f"{self._session}/element/{found[_ELEMENT]}"

    def write(self, selector, text):
        self._send("POST", self._find(selector) + "/value", {"text": text})

    def click(self, selector):
        self._send("POST", self._find(selector) + "/click", {})

    def run(self, script):
        return self._send("POST", self._session + "/execute/sync", {"script": script, "args": []})

    def text(self):
        return self.run("return document.body.innerText")

    def wait_for(self, text):
        """Wait until the page shows a text, and give all that it shows."""
        wait_for(lambda: text in self.text(), f"{text!r} on the page", 60, lambda: None)
        return self.text()

    def cookies(self):
        return self._send("GET", self._session + "/cookie")

    def messages(self):
        """What the browser complained about since the last call."""
        return self._send("POST", self._session + "/se/log", {"type": "browser"})

    def picture(self, path):
        path.write_bytes(base64.b64decode(self._send("GET", self._session + "/screenshot")))

    def close(self):
        try:
            self._send("DELETE", self._session)
        finally:
            self._process.terminate()
            self._process.wait(30)
