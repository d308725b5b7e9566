"""The ways in which a program's lines reach a log file: what runtimes, forwarders and terminals put around them.

Each takes the text of a log and gives the text that would be in the file. None adds or takes away a failure.
"""

import json
import re

TIME = "2026-06-25T13:{:02d}:{:02d}.{:06d}Z"
# What another program prints in between; nothing in it is about locks.
NOISE = ["GET /health 200 0.4 ms", "worker 3 is idle", '{"level":"info","msg":"cache refreshed","entries":17}']
# Where a record begins, in the set-ups that begin each one with the time.
DATED = re.compile(r"^(?:\[?\d{4}-\d\d-\d\d[ T]\d\d:\d\d|\d\d:\d\d:\d\d\.\d{3} )")
# What can only stand inside of a record: stacks and what belongs to them, in all of these languages.
INSIDE = re.compile(
    r"^(?:\s|$|[\])}\"]+[,;]?$|The above exception|During handling|Caused by|Stack trace:|Stack backtrace:|note: |future: |--- End|#\d|\[stacktrace\]|\[previous exception\]|\"\}|Node\.js v"
    r"|/\S+:\d+:in )"
)
TRACEBACK = re.compile(r"^Traceback ")
CHAIN = re.compile(r"^(?:The above exception|During handling)")
EXCEPTION = re.compile(r"^(?:[\w.\\:]*(?:Error|Exception|NotAcquired|Lock|Achieved)\b)")
FRAME = re.compile(r"^\s+(?:at |File |from |\d+: )|^#\d")


# Fixtures that a wrapping is not for, by wrapping and fixture, and why.
SKIPPED = {}


def stamp(index):
    """A time for each line, 20 ms after the one before."""
    return TIME.format(37 + index // 3000, index // 50 % 60, index % 50 * 20000)


def each_line(wrap):
    def wrapped(text):
        return "".join(wrap(index, line) + "\n" for index, line in enumerate(text.split("\n")[:-1]))

    return wrapped


def compact(record):
    return json.dumps(record, separators=(",", ":"), ensure_ascii=False)


def docker(text):
    return each_line(lambda index, line: compact({"log": line + "\n", "stream": "stderr", "time": stamp(index)}))(text)


def docker_escaped(text):
    """As encoders write that escape whatever they may."""
    escaped = docker(text)
    return re.sub(r"['<>&+]", lambda found: f"\\u{ord(found[0]):04x}", escaped)


def cri_two_streams(text):
    """One container's two streams: on standard error the log, on standard output the rest of what it prints."""
    def wrap(index, line):
        return f"{stamp(index)} stderr F {line}\n{stamp(index)} stdout F {NOISE[index % 3]}"

    return each_line(wrap)(text)


def cri_pieces(text):
    """Long lines, which the runtime cut in two. It does so at 16 KiB; here everything longer than a usual line is long."""
    def wrap(index, line):
        if len(line) < 200:
            return f"{stamp(index)} stderr F {line}"
        middle = len(line) // 2
        return f"{stamp(index)} stderr P {line[:middle]}\n{stamp(index)} stderr F {line[middle:]}"

    return each_line(wrap)(text)


def cri_short_pieces(text):
    """Every line in pieces of a few characters, so that each text is cut somewhere, and between them pieces of the other stream."""
    def wrap(index, line):
        size = 7 + index % 13
        pieces = [line[at:at + size] for at in range(0, len(line), size)] or [""]
        noise = NOISE[index % 3]
        lines = []
        for at, piece in enumerate(pieces):
            lines.append(f"{stamp(index)} stderr {'F' if at == len(pieces) - 1 else 'P'} {piece}")
            # The other stream's line is still open when this one ends, now and then.
            lines.append(f"{stamp(index)} stdout {'F' if at % 3 == 2 else 'P'} {noise[at % 3 * 9:at % 3 * 9 + 9]}")
        return "\n".join(lines)

    return each_line(wrap)(text)


def docker_short_pieces(text):
    """The same as Docker writes it: a piece is a record without a newline."""
    def wrap(index, line):
        size = 7 + index % 13
        pieces = [line[at:at + size] for at in range(0, len(line), size)] or [""]
        pieces[-1] += "\n"
        records = []
        for piece in pieces:
            records.append({"log": piece, "stream": "stderr", "time": stamp(index)})
            records.append({"log": NOISE[index % 3] + "\n", "stream": "stdout", "time": stamp(index)})
        return "\n".join(map(compact, records))

    return each_line(wrap)(text)


def rfc_5424(data, mark=""):
    """Two programs' lines in turn, as rsyslog and syslog-ng forward them."""
    def wrap(index, line):
        other = f"<14>1 {stamp(index)} worker-1 web 18 - {data} {mark}{NOISE[index % 3]}"
        return f"<165>1 {stamp(index)} worker-1 billing 17 ID47 {data} {mark}{line}\n{other}"

    return each_line(wrap)


def compose(text):
    """Docker Compose shows two containers in turn."""
    return each_line(lambda index, line: f"celery_1  | {line}\nweb_1     | {NOISE[index % 3]}")(text)


def color(line):
    if line.startswith("{"):
        return f"\x1b[32m{line}\x1b[0m"
    words = line.split(" ")
    for index in range(3, len(words), 4):
        words[index] = f"\x1b[1m{words[index]}\x1b[22m"
    return "\x1b[31m" + " ".join(words) + "\x1b[0m"


def goes_on(record, line):
    """Whether a line belongs to the record before it: an exception to its message or traceback, and not to another one's."""
    if record.startswith("{") or DATED.match(line) or line.startswith("{"):
        return False
    if INSIDE.match(line):
        return True
    before = [earlier for earlier in record.split("\n") if earlier]
    last = before[-1] if before else ""
    in_traceback = any(TRACEBACK.match(earlier) for earlier in before)
    if TRACEBACK.match(line):
        return not in_traceback or bool(CHAIN.match(last))
    if EXCEPTION.match(line):
        return last.startswith(" ") if in_traceback else not FRAME.match(last) and not EXCEPTION.match(last)
    return False


def records(text):
    """The records of a log. A line that does not go on with one begins one."""
    found = []
    for line in text.split("\n")[:-1]:
        if found and goes_on(found[-1], line):
            found[-1] += "\n" + line
        elif line:
            found.append(line)
    return found


def each_record(wrap):
    def wrapped(text):
        # A second apart: what is said about one failure in two records is joined, and two failures of one lock are not.
        return "".join(wrap(index * 50, record) + "\n" for index, record in enumerate(records(text)))

    return wrapped


def nested_json(index, record):
    """A forwarder that keeps the record twice: as the message, and as it was."""
    return compact({"@timestamp": stamp(index), "message": record, "event": {"original": record}, "host": {"name": "worker-1"}})


def in_string(index, record):
    """Fluent Bit: the record in a string, beside what is known about its pod."""
    pod = {"pod_name": "billing-5", "labels": {"app": "billing"}}
    return compact({"time": stamp(index), "stream": "stderr", "log": record, "kubernetes": pod})


def escaped_colors(text):
    """Colors as JSON writes them, after more than a block's beginning without any."""
    quiet = compact({"time": stamp(0), "level": "info", "msg": "cache refreshed"}) + "\n"
    colored = each_record(lambda index, record: in_string(index, "\n".join(map(color, record.split("\n")))))(text)
    return quiet * 200 + re.sub("\x1b", lambda _: "\\u001b", colored)


def both_colors(text):
    """A file that two programs write: one's colors as they are, the other's as JSON writes them."""
    plain = "\x1b[32mGET /health\x1b[0m 200 0.4 ms\n"
    return plain + escaped_colors(text)


WRAPPINGS = {
    "bare": lambda text: text,
    "carriage-returns": lambda text: text.replace("\n", "\r\n"),
    "docker": docker,
    "docker-escaped": docker_escaped,
    "cri-two-streams": cri_two_streams,
    "cri-pieces": cri_pieces,
    "cri-short-pieces": cri_short_pieces,
    "docker-short-pieces": docker_short_pieces,
    "compose": compose,
    "rfc-5424": rfc_5424(r'[origin@32473 software="app [1\] \"x\"" ip="10.0.0.1"][meta sequenceId="7"]'),
    "rfc-5424-without-data": rfc_5424("-"),
    "rfc-5424-byte-order-mark": rfc_5424("-", "\ufeff"),
    "syslog": each_line(lambda index, line: f"Jun 25 13:37:{index // 50 % 60:02d} worker-1 billing[17]: {line}"),
    "heroku": each_line(lambda index, line: f"{stamp(index)[:-1]}+00:00 app[worker.1]: {line}"),
    "journald": each_line(lambda index, line: f"Jun 25 13:37:{index // 50 % 60:02d} worker-1 python3[1701]: {line}"),
    "process-manager": each_line(lambda index, line: f"[0] {line}"),
    "colors": each_line(lambda index, line: color(line)),
    "docker-colors": lambda text: docker(each_line(lambda index, line: color(line))(text)),
    "cri-colors": lambda text: cri_two_streams(each_line(lambda index, line: color(line))(text)),
    "escaped-colors": escaped_colors,
    "both-colors": both_colors,
    "nested-json": each_record(nested_json),
    "in-string": each_record(in_string),
    # The whole stack on one line, newlines as two characters.
    "one-line": each_record(lambda _, record: record.replace("\n", "\\n")),
}
