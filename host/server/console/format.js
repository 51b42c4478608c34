// Numbers, times and names as people read them.

export const NONE = "–";

export function count(number) {
  return number === null || number === undefined ? NONE : Number(number).toLocaleString("en-US");
}

export function short(number) {
  if (number === null || number === undefined) return NONE;
  if (number < 10_000) return count(number);
  return Intl.NumberFormat("en-US", { notation: "compact", maximumFractionDigits: 1 }).format(number);
}

export function dollars(amount) {
  if (amount === null || amount === undefined) return NONE;
  if (amount === 0) return "$0";
  if (amount >= 0.01) return `$${amount.toLocaleString("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 2 })}`;
  return `$${amount.toLocaleString("en-US", { maximumSignificantDigits: 3, maximumFractionDigits: 12 })}`;
}

// A duration that is given in microseconds.
export function duration(us) {
  if (us === null || us === undefined) return NONE;
  if (us < 1000) return `${us} µs`;
  if (us < 10_000) return `${(us / 1000).toFixed(1)} ms`;
  if (us < 1_000_000) return `${Math.round(us / 1000)} ms`;
  if (us < 60_000_000) return `${(us / 1_000_000).toFixed(2)} s`;
  return span(us / 1_000_000);
}

// A duration that is given in seconds.
export function span(seconds) {
  const s = Math.round(seconds);
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min`;
  if (s < 86_400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86_400)} d ${Math.floor((s % 86_400) / 3600)} h`;
}

const pad = (number) => String(number).padStart(2, "0");

// A time of this browser's zone: only the time for today, else with the day.
export function time(text) {
  const at = new Date(text);
  if (!text || Number.isNaN(at.getTime())) return NONE;
  const clock = `${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}`;
  if (at.toDateString() === new Date().toDateString()) return clock;
  return `${day(text)} ${clock.slice(0, 5)}`;
}

// A time as documents and commands have it, for records that are found by their day of UTC.
export function utc(text) {
  const at = new Date(text);
  if (!text || Number.isNaN(at.getTime())) return NONE;
  return at.toISOString().slice(0, 19).replace("T", " ");
}

export function day(text) {
  const at = new Date(text);
  if (!text || Number.isNaN(at.getTime())) return NONE;
  return `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())}`;
}

// The requests of a sum of usage that failed, as the column FAILED of `cofferdam usage` counts them.
export function failedOf({ failed = 0, interrupted = 0 }) {
  return failed + interrupted;
}

export function words(text) {
  return String(text ?? "").replaceAll("_", " ");
}

export function plural(number, one, many = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : many}`;
}
