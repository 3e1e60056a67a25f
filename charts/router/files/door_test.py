"""Asks a router, as a stranger would, whether it serves and whether it is locked: door_test.py URL MODES."""

import sys
import time
import urllib.error
import urllib.request

DEADLINE_S = 60.0


def ask(url, headers):
    """Returns the status and the router's own code, or what went wrong on the way."""
    request = urllib.request.Request(url, headers=headers)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=5) as response:
            return response.status, response.headers.get("X-Sandbox-Router-Error", "")
    except urllib.error.HTTPError as error:
        return error.code, error.headers.get("X-Sandbox-Router-Error", "")
    except OSError as error:
        return None, str(error)


def main(base, modes):
    deadline = time.monotonic() + DEADLINE_S
    while (seen := ask(f"{base}/healthz", {}))[0] != 200:
        if time.monotonic() > deadline:
            print(f"FAIL {base}/healthz: {seen[0] or 'no response'} {seen[1]}")
            print("Does a router run, is it ready, and does a NetworkPolicy admit this pod to it?")
            return 1
        time.sleep(1)
    print(f"ok   {base}/healthz answers 200")

    status, code = ask(f"{base}/", {"X-Sandbox-ID": "helm-test"})
    if modes == "none":
        print(f"ok   a request without a credential: {status} {code} (authentication is off)")
        return 0 if code or status else 1
    if status == 401 and code == "unauthenticated":
        print("ok   a request without a credential is refused: 401 unauthenticated")
        return 0
    print(f"FAIL a request without a credential: {status or 'no response'} {code}, expected 401")
    return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
