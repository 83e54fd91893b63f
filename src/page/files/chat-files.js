import { announce, byId, fromTemplate, setText } from './chat-tools.js';

/**
 * The files for the next message. `upload` uploads a file until its signal is aborted, and resolves with its id.
 */
export function attachedFiles(upload) {
  /** Each is `{ blobId, controller, row }`; `blobId` is undefined until the file is uploaded. */
  let files = [];

  async function add(file) {
    const row = rowOf(file, () => {
      remove(one);
      byId('attach').focus();
    });
    const state = row.querySelector('.file-state');
    const one = { controller: new AbortController(), row };
    files.push(one);
    byId('files').append(row);
    try {
      one.blobId = await upload(file, one.controller.signal);
      setText(state, '');
      announce(`${file.name} is attached.`);
    } catch (error) {
      if (one.controller.signal.aborted) return;
      files = files.filter((other) => other !== one);
      showFailure(row, file, error);
    }
  }

  function remove(one) {
    one.controller.abort();
    one.row.remove();
    files = files.filter((other) => other !== one);
  }

  /** Forgets the files, and returns them. */
  function empty() {
    byId('files').replaceChildren();
    return files.splice(0);
  }

  chooseFiles(add);
  return {
    isEmpty: () => files.length === 0,
    isUploading: () => files.some(({ blobId }) => blobId === undefined),
    /** The ids of the uploaded files. They are no longer attached. */
    take: () => empty().map(({ blobId }) => blobId),
    /** Ends all uploads. */
    clear() {
      for (const { controller } of empty()) controller.abort();
    },
  };
}

/** Shows that the file of the row was not uploaded. */
function showFailure(row, { name }, { message }) {
  row.dataset.state = 'failed';
  setText(row.querySelector('.file-state'), message);
  announce(`${name} is not attached. ${message}`);
}

/** Calls `add` with each file that the user chooses. */
function chooseFiles(add) {
  byId('attach').addEventListener('click', () => byId('file').click());
  byId('file').addEventListener('change', ({ target }) => {
    for (const file of target.files) add(file);
    // The same file can be chosen again.
    target.value = '';
  });
}

/** A row for a file that is being uploaded. */
function rowOf({ name }, onRemove) {
  const row = fromTemplate('attached');
  setText(row.querySelector('.file-name'), name);
  setText(row.querySelector('.file-state'), 'Uploading…');
  const button = row.querySelector('.remove');
  button.ariaLabel = `Remove ${name}`;
  button.addEventListener('click', onRemove);
  return row;
}
