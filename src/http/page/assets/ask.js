// Questions to the exporter, and its clock.

const PATIENCE_MS = 8000;

// By how much the exporter's clock is ahead of this machine's, in seconds: ages are told by its clock.
let ahead = 0;

export const now = () => Date.now() / 1000 + ahead;

export function setClock(seconds) {
  ahead = seconds - Date.now() / 1000;
}

// The answer as JSON. The error has the exporter's own words where there are any.
export async function ask(path) {
  const abort = new AbortController();
  const patience = setTimeout(() => abort.abort(), PATIENCE_MS);
  try {
    const response = await fetch(path, { signal: abort.signal, headers: { accept: "application/json" } });
    const body = await response.json().catch(() => ({}));
    if (!response.ok) throw Object.assign(new Error(body.error ?? `answer ${response.status}`), { status: response.status });
    return body;
  } catch (error) {
    if (error.name === "AbortError") throw new Error("no answer in time");
    throw error instanceof TypeError ? new Error("the exporter cannot be reached") : error;
  } finally {
    clearTimeout(patience);
  }
}
