"""Asks a router, as a stranger would, whether it serves and whether it is locked: door_test.py HOST:PORT MODES."""

import http.client
import sys
import time

DEADLINE_S = 60.0


def ask(address, path, headers):
    """Returns the status and the router's own code, or None and what went wrong on the way."""
    connection = http.client.HTTPConnection(address, timeout=5)
    try:
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        return response.status, response.getheader("X-Sandbox-Router-Error") or ""
    except (OSError, http.client.HTTPException) as error:
        return None, str(error) or repr(error)
    finally:
        connection.close()


def main(address, modes):
    deadline = time.monotonic() + DEADLINE_S
    while (seen := ask(address, "/healthz", {}))[0] != 200:
        if time.monotonic() > deadline:
            print(f"FAIL {address}/healthz: {seen[0] or 'no response'} {seen[1]}")
            print("Does a router run, is it ready, and does a NetworkPolicy admit this pod to it?")
            return 1
        time.sleep(1)
    print(f"ok   {address}/healthz answers 200")

    status, code = ask(address, "/", {"X-Sandbox-ID": "helm-test"})
    if modes == "none" and status is not None:
        print(f"ok   a request without a credential: {status} {code} (authentication is off)")
        return 0
    if (status, code) == (401, "unauthenticated"):
        print("ok   a request without a credential is refused: 401 unauthenticated")
        return 0
    print(f"FAIL a request without a credential: {status or 'no response'} {code}, expected 401")
    return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
