// Asks the console's server: once, again and again (server-sent events), or for a change.

export class Problem extends Error {
  constructor(problem) {
    super(problem.text);
    this.status = problem.status;
    this.notes = problem.notes ?? [];
  }
}

let writeToken = null;

export const mayWrite = () => writeToken !== null;

async function answered(response) {
  let body = null;
  try {
    body = await response.json();
  } catch {
    throw new Problem({ status: response.status, text: `The console's server answers with status ${response.status}.` });
  }
  if (!response.ok) throw new Problem(body.error);
  return body;
}

async function asked(path, options) {
  let response = null;
  try {
    response = await fetch(path, options);
  } catch {
    throw new Problem({ status: 0, text: "The console's server does not answer. Is `semel console` still running?" });
  }
  return answered(response);
}

const sent = (path, body, headers = {}) =>
  asked(path, { method: "POST", headers: { "content-type": "application/json", ...headers }, body: JSON.stringify(body) });

const begun = async (answer) => {
  const found = await answer;
  writeToken = found.write_token;
  return found;
};

export const login = (token) => begun(sent("/api/login", { token }));

export const session = () => begun(asked("/api/session"));

const target = (name, parameters) => `/api/facts/${name}?${new URLSearchParams(parameters)}`;

export const facts = (name, parameters = {}) => asked(target(name, parameters));

let asking = null;

/** Elements that say what the pages leave out because of missing rights; asked once. */
export function rightsNotes(show) {
  asking ??= facts("rights").catch(() => {
    asking = null;
    return { notes: [] };
  });
  asking.then((found) => show(found.notes));
}

export const change = (name, body) => sent(`/api/do/${name}`, body, { "x-semel-write-token": writeToken ?? "" });

/** Calls show(facts) at first and after each change, and trouble(problem or null). Returns a function that ends it.
 *
 * knocked: gets the brokers of the overview that do not answer now, with the reasons.
 *
 * A page in the background is not watched: browsers open only six connections to a host.
 */
export function watch(name, parameters, show, trouble, knocked = null) {
  let source = null;
  let ended = false;
  const open = () => {
    if (ended || source !== null || document.hidden) return;
    source = new EventSource(target(name, { ...parameters, watch: "1" }));
    source.addEventListener("facts", (event) => {
      trouble(null);
      show(JSON.parse(event.data));
    });
    if (knocked !== null) source.addEventListener("knock", (event) => knocked(JSON.parse(event.data).silent));
    source.addEventListener("trouble", (event) => trouble(new Problem(JSON.parse(event.data))));
    source.addEventListener("error", async () => {
      if (source === null) return;
      const isOver = source.readyState === EventSource.CLOSED;
      try {
        await session();
        if (isOver) {
          close();
          setTimeout(open, 2000);
        }
      } catch (problem) {
        trouble(problem);
        if (isOver) {
          close();
          if (problem.status !== 401) setTimeout(open, 2000);
        }
      }
    });
  };
  const close = () => {
    source?.close();
    source = null;
  };
  const turn = () => (document.hidden ? close() : open());
  document.addEventListener("visibilitychange", turn);
  open();
  return () => {
    ended = true;
    document.removeEventListener("visibilitychange", turn);
    close();
  };
}
