"""The official Python client, or FastMCP's, logs in, calls a tool, again when its token has ended, and one with a scope that it lacked.

    python drive.py (mcp | fastmcp) URL SECONDS (legacy | 2026-07-28)

SECONDS is how long access tokens live. Prints a line for each step. A person in front of a browser is played by requests that follow redirects and submit forms.
"""

import asyncio
import re
import sys
import urllib.parse
import urllib.request
from html import unescape
from http.cookiejar import CookieJar

import fastmcp
import mcp
from fastmcp.client.auth import OAuth
from mcp.client.auth import AuthorizationCodeResult, OAuthClientProvider
from mcp.client.streamable_http import create_mcp_http_client, streamable_http_client
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken

NAME, URL, SECONDS, MODE = sys.argv[1:]
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


class Browser:
    """The person's part of a login, without a browser and without a socket for the callback."""

    logins = 0

    async def redirect(self, url: str) -> None:
        self.logins += 1
        self.back = await asyncio.to_thread(sign_in, url)

    async def callback(self) -> AuthorizationCodeResult:
        back = self.back
        assert "code" in back, back
        return AuthorizationCodeResult(code=back["code"], state=back.get("state"), iss=back.get("iss"))


BROWSER = Browser()


class Login(OAuth):
    """FastMCP's login in that browser."""

    async def redirect_handler(self, authorization_url: str) -> None:
        await BROWSER.redirect(authorization_url)

    async def callback_handler(self) -> AuthorizationCodeResult:
        return await BROWSER.callback()


class Memory:
    """Where the official client keeps what it was given."""

    tokens: OAuthToken | None = None
    client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


async def steps(client) -> None:
    tools = await client.list_tools()
    print(f"sign-in: {len(getattr(tools, 'tools', tools))} tools", flush=True)
    said = await client.call_tool("echo", {"message": "hello"})
    assert said.content[0].text == "hello", said
    print("call: answered", flush=True)
    await asyncio.sleep(int(SECONDS) + 3)
    logins = BROWSER.logins
    said = await client.call_tool("echo", {"message": "hello"})
    assert said.content[0].text == "hello", said
    assert BROWSER.logins == logins, "the user had to sign in again"
    print("refresh: answered with another token", flush=True)
    said = await client.call_tool("calculate", {"operation": "add", "a": 19, "b": 23})
    assert "42" in said.content[0].text, said
    assert BROWSER.logins == logins + 1, "one more login, for the scope"
    print("step-up: answered after a login with the scope that was lacking", flush=True)


async def main() -> None:
    if NAME == "fastmcp":
        async with fastmcp.Client(URL, auth=Login(URL), mode=MODE) as client:
            return await steps(client)
    metadata = OAuthClientMetadata(client_name="longshore-interop", redirect_uris=[f"{REDIRECT}9/callback"])
    auth = OAuthClientProvider(URL, metadata, Memory(), BROWSER.redirect, BROWSER.callback)
    http = create_mcp_http_client(auth=auth)
    async with http, mcp.Client(streamable_http_client(URL, http_client=http), mode=MODE) as client:
        await steps(client)


asyncio.run(main())
