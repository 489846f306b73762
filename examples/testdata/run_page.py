"""Runs the blocks of a page of docs in order, in one session: run_page.py PAGE.md CKD

Blocks of python share their names; blocks of sh run command by command; a block of yaml goes into
policy.yaml, before the critical classes, or is access.yaml. A daemon that the page starts listens on a socket and a port of
its own, which stand in for the addresses of the page. A command about outcomes is tried again for a
while, since outcomes become due. Files that the page writes stay in the working folder.
"""

import pathlib
import re
import subprocess
import sys
import time

page, ckd = sys.argv[1:]
own = {"127.0.0.1:8590": "unix:" + str(pathlib.Path("s").resolve())}
daemons = []
names = {"__name__": "__main__"}


def replaced(text):
    for address, used in own.items():
        text = text.replace(address, used)
    return text


def serve(command):
    """Starts the daemon and waits until it listens."""
    log = open("daemon.log", "w+")
    started = subprocess.Popen(
        [ckd, *command.split()[1:], "--listen", own["127.0.0.1:8590"], "--admin", "127.0.0.1:0", "--http", "127.0.0.1:0"], stderr=log
    )
    daemons.append(started)
    for _ in range(6000):
        text = pathlib.Path("daemon.log").read_text()
        heard = dict(re.findall(r'"msg":"listening","for":"(\w+)","address":"(?:http://)?([^"]+)"', text))
        if len(heard) >= 3:
            own["127.0.0.1:9590"], own["127.0.0.1:8591"] = heard["admin"], heard["http"]
            return
        if started.poll() is not None:
            break
        time.sleep(0.01)
    sys.exit(f"{command}: the daemon does not listen\n{text}")


def stop():
    while daemons:
        last = daemons.pop()
        last.terminate()
        last.wait()


def shell(command):
    """Runs one command, which must succeed."""
    print("$", command, flush=True)
    if command.startswith("ckd serve"):
        return serve(command)
    if command.startswith("ckd outcomes restore"):
        stop()
    for left in reversed(range(120 if command.startswith("ckd outcomes") else 1)):
        done = subprocess.run(replaced(command), shell=True, capture_output=True, text=True)
        if done.returncode == 0 or left == 0:
            break
        time.sleep(0.5)
    print(done.stdout, done.stderr, sep="", flush=True)
    if done.returncode != 0:
        sys.exit(f"{command}: exit code {done.returncode}")


try:
    for kind, block in re.findall(r"```(python|sh|yaml)\n(.*?)```", pathlib.Path(page).read_text(), re.S):
        if kind == "python":
            exec(compile(replaced(block), page, "exec"), names)
        elif block.startswith("identities:"):
            pathlib.Path("access.yaml").write_text(block)
        elif kind == "yaml":
            policy = pathlib.Path("policy.yaml")
            policy.write_text(policy.read_text().replace("    critical:", block + "    critical:", 1))
        else:
            for command in block.replace("\\\n", " ").strip().split("\n"):
                shell(command)
finally:
    stop()
