// Formats numbers and times for people.

const NUMBER = new Intl.NumberFormat("en");

export const number = (value) => (value === null || value === undefined ? "–" : NUMBER.format(value));

export function percent(share) {
  if (share === null || share === undefined) return "–";
  const value = share * 100;
  return `${value > 0 && value < 10 ? Math.round(value * 10) / 10 : Math.round(value)} %`;
}

// Formats durations like the exporter's own sentences.
export function span(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const time = Math.max(0, seconds);
  if (time < 10) return `${Math.round(time * 10) / 10} s`;
  if (time < 120) return `${Math.round(time)} s`;
  if (time < 7200) return units(time, 60, "min", 1, "s");
  if (time < 172800) return units(time, 3600, "h", 60, "min");
  return units(time, 86400, "d", 3600, "h");
}

function units(time, large, largeName, small, smallName) {
  const rest = Math.floor((time % large) / small);
  const whole = `${Math.floor(time / large)} ${largeName}`;
  return rest ? `${whole} ${rest} ${smallName}` : whole;
}

export function bytes(count) {
  const names = ["B", "KiB", "MiB", "GiB", "TiB"];
  let value = count ?? 0;
  let unit = 0;
  while (value >= 1024 && unit < names.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${unit ? Math.round(value * 10) / 10 : value} ${names[unit]}`;
}

const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const DATE = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short" });

// Local time of day, with the date if it is not today.
export function clock(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const date = new Date(seconds * 1000);
  const today = date.toDateString() === new Date().toDateString();
  return today ? CLOCK.format(date) : `${DATE.format(date)} ${CLOCK.format(date)}`;
}

export const utc = (seconds) => new Date(seconds * 1000).toISOString();

// The exporter's sentences begin in lower case and have no period.
export const sentence = (text) => `${text.charAt(0).toUpperCase()}${text.slice(1)}${text.endsWith(".") ? "" : "."}`;

export const words = (name) => name.replaceAll("_", " ");
