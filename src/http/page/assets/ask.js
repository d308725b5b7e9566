// Requests to the exporter, and the exporter's clock.

const PATIENCE_MS = 8000;

// Seconds by which the exporter's clock is ahead of the browser's. Ages use the exporter's clock.
let ahead = 0;

export const now = () => Date.now() / 1000 + ahead;

export function setClock(seconds) {
  ahead = seconds - Date.now() / 1000;
}

// Returns the response as JSON. Throws an error with the exporter's own message if there is one.
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
