"""The formats in which a program's lines reach a log file, as runtimes, forwarders and terminals write them.

Each function converts the text of a log to the text in the file. None adds or removes a failure.
"""

import json
import re

TIME = "2026-06-25T13:{:02d}:{:02d}.{:06d}Z"
# Output of another program in between. It contains nothing about locks.
NOISE = ["GET /health 200 0.4 ms", "worker 3 is idle", '{"level":"info","msg":"cache refreshed","entries":17}']
# Where a record begins, in setups that start each record with the time.
DATED = re.compile(r"^(?:\[?\d{4}-\d\d-\d\d[ T]\d\d:\d\d|\d\d:\d\d:\d\d\.\d{3} )")
# Text that occurs only inside a record: stacks and related lines, in all of these languages.
INSIDE = re.compile(
    r"^(?:\s|$|[\])}\"]+[,;]?$|The above exception|During handling|Caused by|Stack trace:|Stack backtrace:|note: |future: |--- End|#\d|\[stacktrace\]|\[previous exception\]|\"\}|Node\.js v"
    r"|/\S+:\d+:in )"
)
TRACEBACK = re.compile(r"^Traceback ")
CHAIN = re.compile(r"^(?:The above exception|During handling)")
EXCEPTION = re.compile(r"^(?:[\w.\\:]*(?:Error|Exception|NotAcquired|Lock|Achieved)\b)")
FRAME = re.compile(r"^\s+(?:at |File |from |\d+: )|^#\d")


# Fixtures that do not support a wrapping, by wrapping and fixture, and the reason.
SKIPPED = {}


def stamp(index):
    """Returns a time for each line, 20 ms after the previous one."""
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
    """Formats JSON like encoders that escape as many characters as possible."""
    escaped = docker(text)
    return re.sub(r"['<>&+]", lambda found: f"\\u{ord(found[0]):04x}", escaped)


def cri_two_streams(text):
    """Two streams of one container: the log on standard error, other output on standard output."""
    def wrap(index, line):
        return f"{stamp(index)} stderr F {line}\n{stamp(index)} stdout F {NOISE[index % 3]}"

    return each_line(wrap)(text)


def cri_pieces(text):
    """Splits long lines in two like the runtime. The runtime does so at 16 KiB; here every line longer than usual is split."""
    def wrap(index, line):
        if len(line) < 200:
            return f"{stamp(index)} stderr F {line}"
        middle = len(line) // 2
        return f"{stamp(index)} stderr P {line[:middle]}\n{stamp(index)} stderr F {line[middle:]}"

    return each_line(wrap)(text)


def cri_short_pieces(text):
    """Splits every line into pieces of a few characters, so that each text is split somewhere, and interleaves the other stream."""
    def wrap(index, line):
        size = 7 + index % 13
        pieces = [line[at:at + size] for at in range(0, len(line), size)] or [""]
        noise = NOISE[index % 3]
        lines = []
        for at, piece in enumerate(pieces):
            lines.append(f"{stamp(index)} stderr {'F' if at == len(pieces) - 1 else 'P'} {piece}")
            # Sometimes the line of the other stream is still incomplete when this one ends.
            lines.append(f"{stamp(index)} stdout {'F' if at % 3 == 2 else 'P'} {noise[at % 3 * 9:at % 3 * 9 + 9]}")
        return "\n".join(lines)

    return each_line(wrap)(text)


def docker_short_pieces(text):
    """The same in Docker's format: a piece is a record without a newline."""
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
    """Alternates lines of two programs, as rsyslog and syslog-ng forward them."""
    def wrap(index, line):
        other = f"<14>1 {stamp(index)} worker-1 web 18 - {data} {mark}{NOISE[index % 3]}"
        return f"<165>1 {stamp(index)} worker-1 billing 17 ID47 {data} {mark}{line}\n{other}"

    return each_line(wrap)


def compose(text):
    """Alternates the output of two containers, as Docker Compose shows it."""
    return each_line(lambda index, line: f"celery_1  | {line}\nweb_1     | {NOISE[index % 3]}")(text)


def color(line):
    if line.startswith("{"):
        return f"\x1b[32m{line}\x1b[0m"
    words = line.split(" ")
    for index in range(3, len(words), 4):
        words[index] = f"\x1b[1m{words[index]}\x1b[22m"
    return "\x1b[31m" + " ".join(words) + "\x1b[0m"


def goes_on(record, line):
    """Returns whether a line belongs to the previous record: an exception to its message or traceback, and not to another one's."""
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
    """Returns the records of a log. A line that does not continue a record begins one."""
    found = []
    for line in text.split("\n")[:-1]:
        if found and goes_on(found[-1], line):
            found[-1] += "\n" + line
        elif line:
            found.append(line)
    return found


def each_record(wrap):
    def wrapped(text):
        # One second apart: two records about one failure are joined, and two failures of one lock
        # are not.
        return "".join(wrap(index * 50, record) + "\n" for index, record in enumerate(records(text)))

    return wrapped


def nested_json(index, record):
    """A forwarder that stores the record twice: as the message, and in its original form."""
    return compact({"@timestamp": stamp(index), "message": record, "event": {"original": record}, "host": {"name": "worker-1"}})


def in_string(index, record):
    """Fluent Bit: the record in a string, with metadata of its pod."""
    pod = {"pod_name": "billing-5", "labels": {"app": "billing"}}
    return compact({"time": stamp(index), "stream": "stderr", "log": record, "kubernetes": pod})


def escaped_colors(text):
    """Colors in JSON notation, after more than a block without any."""
    quiet = compact({"time": stamp(0), "level": "info", "msg": "cache refreshed"}) + "\n"
    colored = each_record(lambda index, record: in_string(index, "\n".join(map(color, record.split("\n")))))(text)
    return quiet * 200 + re.sub("\x1b", lambda _: "\\u001b", colored)


def both_colors(text):
    """A file that two programs write: one with raw colors, the other with colors in JSON notation."""
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
    # The complete stack on one line, with newlines as two characters.
    "one-line": each_record(lambda _, record: record.replace("\n", "\\n")),
}
