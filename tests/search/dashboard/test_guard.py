"""Pages of other sites cannot use the dashboard, and other machines only with the token."""

import asyncio

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from search.dashboard.guard import LARGEST_BODY, Guard


async def answer_all(request):
    return PlainTextResponse("done")


APP = Starlette(routes=[Route("/", answer_all, methods=["GET", "POST"])])


def ask(guard, method="GET", query="", path="/", **headers):
    """Return the status and the headers of the answer; `headers` have underscores for hyphens."""
    sent = {"host": "127.0.0.1:8270", "content_length": "2", **headers}
    raw = [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in sent.items()]
    scope = {
        "type": "http", "method": method, "path": path, "raw_path": path.encode(), "root_path": "", "scheme": "http",
        "http_version": "1.1", "query_string": query.encode(), "headers": raw, "server": ("127.0.0.1", 8270),
    }  # fmt: skip
    answers = []

    async def receive():
        return {"type": "http.request", "body": b"{}", "more_body": False}

    async def send(message):
        answers.append(message)

    asyncio.run(guard(scope, receive, send))
    start = answers[0]
    return start["status"], {name.decode(): value.decode() for name, value in start["headers"]}


OWN = {"origin": "http://127.0.0.1:8270"}


@pytest.mark.parametrize("host", ["127.0.0.1:8270", "localhost:8270", "[::1]:8270"])
def test_the_own_page_on_loopback_may_read_and_change(host):
    guard = Guard(APP, 8270)
    assert ask(guard, host=host)[0] == 200
    assert ask(guard, "POST", host=host, origin=f"http://{host}")[0] == 200


@pytest.mark.parametrize("host", ["evil.example:8270", "127.0.0.1.evil.example", "", "localhost.evil.example", "[bad"])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_site_that_gave_its_name_the_address_127_0_0_1_gets_nothing(host, method):
    assert ask(Guard(APP, 8270), method, host=host, origin=f"http://{host}")[0] == 403


@pytest.mark.parametrize("origin", ["http://evil.example", "http://127.0.0.1:9999", "null", ""])
def test_a_form_of_another_site_changes_nothing(origin):
    assert ask(Guard(APP, 8270), "POST", origin=origin)[0] == 403
    assert ask(Guard(APP, 8270, "secret"), "POST", origin=origin, cookie="sweep-dashboard-8270=secret")[0] == 403


@pytest.mark.parametrize(
    "odd", ["http://[", "http://[::1", "//[x]", "http://a\xbd", "\x00", "http://127.0.0.1:99999", "[" * 60_000]
)
def test_an_odd_origin_host_or_cookie_is_refused_and_no_fault(odd):
    assert ask(Guard(APP, 8270), "POST", origin=odd)[0] == 403
    assert ask(Guard(APP, 8270), host=odd.removeprefix("http://127.0.0.1"))[0] == 403
    assert ask(Guard(APP, 8270, "secret"), cookie=odd)[0] == 403
    assert ask(Guard(APP, 8270), query="token=%ED%A0%80&since=%ED%A0%80")[0] == 200


def test_an_address_with_a_number_that_python_does_not_read_is_refused():
    digits = "9" * 5000
    assert ask(Guard(APP, 8270), path=f"/trials/{digits}/log")[0] == 414
    assert ask(Guard(APP, 8270), query=f"since={digits}")[0] == 414
    assert ask(Guard(APP, 8270, "secret"), query=f"token={digits}")[0] == 414


def test_a_request_in_chunks_does_not_pass_the_limit_of_its_size():
    guard = Guard(APP, 8270)
    assert ask(guard, "POST", **OWN)[0] == 200
    assert ask(guard, "POST", **OWN, transfer_encoding="chunked")[0] == 403
    assert ask(guard, "POST", **OWN, transfer_encoding="chunked", content_length="")[0] == 403


def test_a_large_request_or_one_of_unknown_length_is_refused():
    guard = Guard(APP, 8270)
    assert ask(guard, "POST", **OWN, content_length=str(LARGEST_BODY + 1))[0] == 403
    assert ask(guard, "POST", **OWN, content_length="")[0] == 403


def test_with_a_token_only_the_printed_address_opens_the_page_and_the_token_leaves_the_address():
    guard = Guard(APP, 8270, "secret")
    assert ask(guard, host="machine:8270")[0] == 403
    assert ask(guard, host="machine:8270", query="token=wrong")[0] == 403
    status, headers = ask(guard, host="machine:8270", query="token=secret")
    assert (status, headers["location"]) == (303, "/")
    cookie = headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "samesite=lax" in cookie.lower()
    assert ask(guard, host="machine:8270", cookie=cookie.partition(";")[0])[0] == 200


def test_the_cookie_of_another_dashboard_on_the_same_machine_does_not_count():
    assert ask(Guard(APP, 8270, "secret"), cookie="sweep-dashboard-8271=secret")[0] == 403


def test_no_page_can_hold_the_dashboard_in_a_frame_or_run_other_scripts():
    policy = ask(Guard(APP, 8270))[1]["content-security-policy"]
    assert "frame-ancestors 'none'" in policy
    assert "script-src 'self';" in policy
