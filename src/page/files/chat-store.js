import { randomId } from './bot-relay-random-id.js';

/** What the browser keeps: the ids of conversations, and for the user of this tab the names of uploaded files. */

const CONVERSATIONS = 'bot-relay-conversations';
const FILES = 'bot-relay-files';
/** The oldest are forgotten: each guest is a new user. */
const MAX_CONVERSATIONS = 50;
const MAX_FILES = 100;
/** How long a change of the storage may take to reach the other tabs, in ms. */
const SPREAD_MS = 100;

/** With `CHANNELS=shared`, whoever knows an id reaches the conversation, so only this tab keeps it, until the sign-out. */
const idStorage = document.body.dataset.channels === 'shared' ? sessionStorage : localStorage;

/**
 * The conversation of one user with one bot of the relay at `folder`. Its id is the same after a reload. It is made
 * now if there is none, or if the browser offers no hashes, as on pages without https.
 */
export async function storedConversation(folder, user, bot) {
  const key = await hashOf(JSON.stringify([folder, user, bot]));
  const id = key ? await idOf(key) : randomId();
  const owner = JSON.stringify([folder, user]);
  /** Each is `[bot, blobId, name]`. Read each time, since the conversations of all bots are kept together. */
  const files = () => {
    const kept = read(sessionStorage, FILES);
    return kept?.owner === owner ? kept.files : [];
  };
  return {
    id,
    /** The name of an uploaded file; undefined if it was uploaded elsewhere. */
    nameOf: (blobId) => files().find((file) => file[0] === bot && file[1] === blobId)?.[2],
    /** Whether several uploaded files have this name. */
    isTwice: (name) => files().filter((file) => file[0] === bot && file[2] === name).length > 1,
    addFile(blobId, name) {
      // The names of another user are not kept.
      const all = [[bot, blobId, name], ...files()].slice(0, MAX_FILES);
      sessionStorage.setItem(FILES, JSON.stringify({ owner, files: all }));
    },
  };
}

/** Forgets what this tab keeps for a user who has signed out. */
export function forgetUser() {
  for (const name of [FILES, CONVERSATIONS]) sessionStorage.removeItem(name);
}

/** The id that is kept under `key`. Tabs take turns, so that two that are opened at once get the same new id. */
function idOf(key) {
  return navigator.locks.request(CONVERSATIONS, async () => {
    const all = read(idStorage, CONVERSATIONS) ?? [];
    const own = all.find((one) => one.key === key);
    const { id } = own ?? { id: randomId() };
    const others = all.filter((one) => one.key !== key);
    const kept = [{ key, id }, ...others].slice(0, MAX_CONVERSATIONS);
    idStorage.setItem(CONVERSATIONS, JSON.stringify(kept));
    // A tab in another process reads a change of the storage a moment later.
    if (!own) await new Promise((resolve) => setTimeout(resolve, SPREAD_MS));
    return id;
  });
}

/** SHA-256 in hex, so that the storage does not name the users of this browser to each other. */
async function hashOf(text) {
  const hash = await crypto.subtle?.digest('SHA-256', new TextEncoder().encode(text));
  return hash && Array.from(new Uint8Array(hash), (byte) => byte.toString(16).padStart(2, '0')).join('');
}

/** What `storage` has under `name`; undefined or null if there is nothing that can be read. */
function read(storage, name) {
  try {
    return JSON.parse(storage.getItem(name));
  } catch {
    return undefined;
  }
}
