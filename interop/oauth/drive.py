"""FastMCP's client, on the official Python SDK, logs in, calls a tool, and calls another with a scope that it lacked.

    python drive.py URL

Prints a line for each step. A person in front of a browser is played by requests that follow redirects and submit forms.
"""

import asyncio
import re
import sys
import urllib.parse
import urllib.request
from html import unescape
from http.cookiejar import CookieJar

from fastmcp import Client
from fastmcp.client.auth import OAuth
from mcp.client.auth import AuthorizationCodeResult

URL = sys.argv[1]
REDIRECT = "http://localhost:"


class NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None


def sign_in(start: str) -> dict[str, str]:
    """Signs in and agrees; returns the parameters that the client is called back with."""
    opener = urllib.request.build_opener(NoRedirect, urllib.request.HTTPCookieProcessor(CookieJar()))
    where, form = start, None
    for _ in range(20):
        data = urllib.parse.urlencode(form).encode() if form else None
        try:
            response = opener.open(urllib.request.Request(where, data=data))
        except urllib.error.HTTPError as error:
            response = error
        form = None
        location = response.headers.get("location")
        if location:
            where = urllib.parse.urljoin(where, location)
            if where.startswith(REDIRECT):
                query = urllib.parse.urlsplit(where).query
                return dict(urllib.parse.parse_qsl(query))
            continue
        page = response.read().decode()
        action = re.search(r'<form[^>]* action="([^"]+)"', page)
        assert action, f"{where} says {response.status}: {page[:300]}"
        where = urllib.parse.urljoin(where, unescape(action[1]))
        consent = re.search(r'name=form value="([^"]+)"', page)
        prompt = re.search(r'name="prompt" value="(\w+)"', page)
        if consent:
            form = {"form": consent[1], "decision": "allow"}
        elif prompt and prompt[1] == "login":
            form = {"prompt": "login", "login": "alice", "password": "x"}
        else:
            form = {"prompt": prompt[1]}
    raise RuntimeError("the provider leads in circles")


class Person(OAuth):
    """The client's login, without a browser and without a socket for the callback."""

    async def redirect_handler(self, authorization_url: str) -> None:
        self.back = await asyncio.to_thread(sign_in, authorization_url)

    async def callback_handler(self) -> AuthorizationCodeResult:
        back = self.back
        assert "code" in back, back
        return AuthorizationCodeResult(code=back["code"], state=back.get("state"), iss=back.get("iss"))


async def main() -> None:
    async with Client(URL, auth=Person(URL)) as client:
        print(f"sign-in: {len(await client.list_tools())} tools")
        said = await client.call_tool("echo", {"message": "hello"})
        assert said.content[0].text == "hello", said
        print("call: answered")


asyncio.run(main())
