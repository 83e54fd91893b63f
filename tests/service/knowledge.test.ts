import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import fc from 'fast-check';
import type { EmbeddingModel, Purpose } from '../../src/service/knowledge/embedding-model.ts';
import { type Knowledge, knowledge } from '../../src/service/knowledge/knowledge.ts';
import { MAX_CHARACTERS, split } from '../../src/service/knowledge/split.ts';
import { type Database, openDatabase } from '../../src/service/settings/database.ts';
import { SettingsError } from '../../src/service/settings/settings-error.ts';
import { settingsFile } from '../harness/service/settings-file.ts';

const DIMENSIONS = 256;
const { signal } = new AbortController();

interface Asked {
  readonly texts: readonly string[];
  readonly purpose: Purpose;
}

/** Counts words: each new word has a dimension of its own, so that texts without a common word have nothing in common. */
function wordCounter(model = 'words/1') {
  const words = new Map<string, number>();
  const asked: Asked[] = [];
  const vectorOf = (text: string) => {
    const vector = new Float32Array(DIMENSIONS);
    for (const [word] of text.toLowerCase().matchAll(/[\p{L}\p{N}]+/gu)) {
      const place = words.get(word) ?? words.size;
      words.set(word, place);
      vector[place % DIMENSIONS] = (vector[place % DIMENSIONS] ?? 0) + 1;
    }
    return vector;
  };
  const counter: EmbeddingModel = {
    model,
    embed: async (texts, purpose) => {
      asked.push({ texts, purpose });
      return texts.map(vectorOf);
    },
  };
  return { ...counter, vectorOf, asked };
}

/** A model that answers with these vectors, whatever it is asked. */
const answering = (...vectors: Float32Array[]): EmbeddingModel => ({
  ...wordCounter(),
  embed: async () => vectors,
});
const failing: EmbeddingModel = {
  ...wordCounter(),
  embed: () => Promise.reject(new SettingsError('The embedding model does not answer.')),
};

let database: Database;
let known: Knowledge;
let words: ReturnType<typeof wordCounter>;
beforeEach(() => {
  database = openDatabase();
  for (const id of ['p', 'q']) addProject(database, id);
  known = knowledge(database);
  words = wordCounter();
});
afterEach(() => database.close());

function addProject(to: Database, id: string) {
  to.prepare('INSERT INTO projects (id, name, created_at) VALUES (?, ?, 0)').run(id, id);
}
const put = (name: string, text: string | Uint8Array, project = 'p') =>
  known.put(project, { name, bytes: typeof text === 'string' ? Buffer.from(text) : text });
const index = (id: string, model: EmbeddingModel = words) => known.index(id, model, { signal });
const addIndexed = (name: string, text: string, project = 'p') => index(put(name, text, project));
const search = (query: string, { project = 'p', model = words as EmbeddingModel, of = known } = {}) =>
  of.search(project, query, { model, signal });
const sources = async (query: string) => (await search(query)).map(({ source }) => source);
const only = () => known.documents('p')[0];

describe('a document', () => {
  test('is found by what it says, with its name and headings as the source', async () => {
    await addIndexed(
      'handbook.md',
      '# Leave\n\nTwelve weeks for parents.\n\n# Travel\n\nSecond class by train.\n',
    );
    expect(await search('how many weeks')).toEqual([
      { text: '# Leave\n\nTwelve weeks for parents.', source: 'handbook.md › Leave' },
    ]);
    expect(await sources('a train')).toEqual(['handbook.md › Travel']);
    expect(await search('unheard')).toEqual([]);
    expect(await search('  \n')).toEqual([]);
    expect(words.asked.map(({ purpose }) => purpose)).toEqual(['document', 'query', 'query', 'query']);
    expect(words.asked[0]?.texts[1]).toBe('handbook.md › Travel\n\n# Travel\n\nSecond class by train.');
  });

  test('is listed with its pieces, its model and whether they are of its text', async () => {
    const id = put('b.txt', 'one');
    put('a.txt', 'two');
    expect(known.documents('p')).toEqual([
      expect.objectContaining({ name: 'a.txt', size: 3, pieces: 0, isCurrent: false, indexedAt: null }),
      expect.objectContaining({ id, name: 'b.txt', size: 3, pieces: 0, isCurrent: false }),
    ]);
    await index(id);
    const indexed = { pieces: 1, isCurrent: true, model: 'words/1', indexedAt: expect.any(Number) };
    expect(known.documents('p')[1]).toMatchObject(indexed);
    expect(known.documents('q')).toEqual([]);
  });

  test('of another project is not found', async () => {
    await addIndexed('a.txt', 'apple');
    await addIndexed('a.txt', 'apple pie', 'q');
    expect(await search('apple')).toEqual([{ text: 'apple', source: 'a.txt' }]);
    expect(await search('apple', { project: 'q' })).toEqual([{ text: 'apple pie', source: 'a.txt' }]);
    expect(await search('apple', { project: 'none' })).toEqual([]);
  });

  test('that is uploaded again is searched as it was until it is indexed', async () => {
    await addIndexed('a.txt', 'apple');
    const id = put('a.txt', 'banana');
    expect(known.documents('p')).toEqual([expect.objectContaining({ id, pieces: 1, isCurrent: false })]);
    expect(await sources('apple')).toEqual(['a.txt']);
    await index(id);
    expect(only()).toMatchObject({ pieces: 1, isCurrent: true });
    expect(await sources('apple')).toEqual([]);
    expect(await sources('banana')).toEqual(['a.txt']);
  });

  test('that is removed is not found any more, and takes no place of others among what is found', async () => {
    await addIndexed('a.md', '# S\napple\n'.repeat(9));
    await addIndexed('b.md', 'apple and pear and plum and fig');
    expect(await sources('apple')).toEqual(Array(5).fill('a.md › S'));
    const id = only()?.id ?? '';
    known.remove(id);
    expect(await sources('apple')).toEqual(['b.md']);
    expect(() => known.remove(id)).toThrow('The document is not there any more.');
    await expect(index(id)).rejects.toThrow('The document is not there any more.');
  });

  test('goes with its project', async () => {
    await addIndexed('a.txt', 'apple');
    expect(await sources('apple')).toEqual(['a.txt']);
    database.exec("DELETE FROM projects WHERE id = 'p'");
    addProject(database, 'p');
    await addIndexed('b.txt', 'banana');
    expect(await sources('apple banana')).toEqual(['b.txt']);
    database.exec("DELETE FROM projects WHERE id = 'p'");
    expect(await sources('banana')).toEqual([]);
    expect(() => put('a.txt', 'x', 'none')).toThrow('The project is not there any more.');
  });
});

describe('an upload', () => {
  test('is refused if its name is none of a plain file of text', () => {
    const names = ['../a.md', '..\\a.md', '/etc/a.txt', 'C:\\a.md', 'a\0.md', 'a\n.md', 'a\u202edm.exe.md'];
    for (const name of [...names, '.hidden.md', 'a..md', ' a.md', '\ud800.md', `${'a'.repeat(198)}.md`, ''])
      expect(() => put(name, 'x')).toThrow('must be a plain file name of at most 200 characters');
    for (const name of ['a.pdf', 'a.md.exe', 'md'])
      expect(() => put(name, 'x')).toThrow('its name must end in .md, .markdown or .txt');
  });

  test('can have any letters in its name, which are one name in either way of writing', () => {
    for (const name of ['Über uns.md', '手册.MD', 'a b-c_(1).markdown', 'v1.2.txt']) put(name, 'x');
    put('U\u0308ber uns.md', 'y');
    expect(known.documents('p')).toHaveLength(4);
  });

  test.each([
    ['Latin-1', Buffer.from('caf\xe9', 'latin1'), 'not text in UTF-8'],
    ['text with NUL', Buffer.from('a\0b'), 'control characters'],
    ['nothing', Buffer.alloc(0), 'a.md is empty'],
    ['white space', Buffer.from(' \n\t\r\n\u00a0'), 'a.md is empty'],
    [
      '1 MB and a byte',
      Buffer.alloc(1_048_577, 'a'),
      'has 1,048,577 bytes. A document can have at most 1,048,576.',
    ],
  ])('is refused if it is %s', (_, bytes, problem) => {
    expect(() => put('a.md', bytes)).toThrow(problem);
    expect(() => put('a.md', bytes)).toThrow(SettingsError);
    expect(known.documents('p')).toEqual([]);
  });

  test('can have 1 MB, and begin with a byte order mark', async () => {
    await addIndexed('a.md', `apple ${'x'.repeat(1_048_570)}`);
    expect(only()).toMatchObject({ pieces: 700, isCurrent: true });
    expect(await sources('apple')).toEqual(['a.md']);
    // A byte order mark is none of the text.
    await addIndexed('b.md', '\ufeff# Fruit\npear');
    expect(await search('pear')).toEqual([{ text: '# Fruit\npear', source: 'b.md › Fruit' }]);
  });

  test('is refused beyond 1,000 documents, but can take the place of one', () => {
    const many = `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 999)
      INSERT INTO documents (id, project_id, name, revision, text) SELECT i, 'p', i || '.md', 1, 'x' FROM n`;
    database.exec(many);
    put('last.md', 'x');
    put('last.md', 'y');
    expect(() => put('more.md', 'x')).toThrow('A project can have at most 1,000 documents.');
    put('more.md', 'x', 'q');
  });
});

describe('an indexing', () => {
  /** `n` sections, each a piece. */
  const sections = (n: number) => Array.from({ length: n }, (_, i) => `# S${i}\ntext\n`).join('');

  test('embeds in batches of 16, and tells its progress', async () => {
    const id = put('a.md', sections(40));
    const told: string[] = [];
    await known.index(id, words, { signal, onProgress: (done, total) => told.push(`${done}/${total}`) });
    expect(words.asked.map(({ texts }) => texts.length)).toEqual([16, 16, 8]);
    expect(told).toEqual(['0/40', '16/40', '32/40', '40/40']);
  });

  const vector = (...values: number[]) => Float32Array.from(values);
  test.each([
    ['fails', failing, 'The embedding model does not answer.'],
    ['gives a vector of nothing', answering(vector(0, 0)), 'a vector that is not one'],
    ['gives no numbers', answering(vector(1, Number.NaN)), 'a vector that is not one'],
    ['gives a huge vector', answering(new Float32Array(4097).fill(1)), '4097 dimensions; at most 4096'],
  ])('keeps the pieces and says why if the model %s', async (_, model, problem) => {
    await addIndexed('a.txt', 'apple');
    const id = put('a.txt', 'banana');
    const failure: unknown = await index(id, model).catch((error) => error);
    expect(failure).toBeInstanceOf(SettingsError);
    expect(String(failure)).toContain(problem);
    expect(only()).toMatchObject({ pieces: 1, isCurrent: false, problem: expect.stringContaining(problem) });
    expect(await sources('apple')).toEqual(['a.txt']);
    await index(id);
    expect(only()).toMatchObject({ isCurrent: true, problem: null });
  });

  test('is refused if the dimensions change between two batches', async () => {
    const id = put('a.md', sections(17));
    let dimensions = 1;
    const embed: EmbeddingModel['embed'] = async (texts) => {
      dimensions += 1;
      return texts.map(() => new Float32Array(dimensions).fill(1));
    };
    await expect(index(id, { ...words, embed })).rejects.toThrow('vectors of different dimensions');
    expect(only()).toMatchObject({ pieces: 0, isCurrent: false });
  });

  test('stops when it is aborted, asks no more of the model, and keeps the pieces', async () => {
    await addIndexed('a.md', 'apple');
    const id = put('a.md', sections(40));
    const abort = new AbortController();
    const before = words.asked.length;
    const onProgress = (done: number) => done === 16 && abort.abort(new Error('closed'));
    await expect(known.index(id, words, { signal: abort.signal, onProgress })).rejects.toThrow('closed');
    expect(words.asked.length - before).toBe(1);
    expect(only()).toMatchObject({ pieces: 1, isCurrent: false, problem: 'The indexing was stopped.' });
    expect(await sources('apple')).toEqual(['a.md']);
  });

  /** A model that answers when it is told to. */
  function waiting() {
    const { promise, resolve } = Promise.withResolvers<void>();
    const embed: EmbeddingModel['embed'] = async (...asked) => {
      await promise;
      return words.embed(...asked);
    };
    return { model: { ...words, embed }, go: resolve };
  }

  test('writes nothing if the document was uploaded anew or removed meanwhile', async () => {
    const id = put('a.txt', 'apple');
    const first = waiting();
    const indexing = index(id, first.model);
    put('a.txt', 'banana');
    first.go();
    await expect(indexing).rejects.toThrow('a.txt was uploaded anew meanwhile. Index it again.');
    expect(only()).toMatchObject({ pieces: 0, isCurrent: false });

    const second = waiting();
    const again = index(id, second.model);
    known.remove(id);
    second.go();
    await expect(again).rejects.toThrow('The document is not there any more.');
    expect(await sources('apple banana')).toEqual([]);
  });

  test('is refused beyond 10,000 pieces in a project, before the model is asked', async () => {
    const id = put('full.md', 'x');
    const many = `WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 9990)
      INSERT INTO pieces (document_id, heading, vector, text) SELECT '${id}', '', x'00000000', 'x' FROM n`;
    database.exec(many);
    const refused = put('b.md', sections(11));
    await expect(index(refused)).rejects.toThrow(
      'A project can have at most 10,000 pieces. This document has 11, and the others have 9,990.',
    );
    expect(words.asked).toEqual([]);
    expect(only()?.problem).toContain('10,000');
    await addIndexed('c.md', sections(10));
    await addIndexed('c.md', sections(10));
    await addIndexed('b.md', sections(11), 'q');
    await index(id);
    await index(refused);
  });

  test('counts the pieces again when it writes', async () => {
    const [a, b] = [put('a.md', sections(6000)), put('b.md', sections(6000))];
    const one = new Float32Array([1]);
    const model = { ...words, embed: async (texts: readonly string[]) => texts.map(() => one) };
    const ends = await Promise.allSettled([index(a, model), index(b, model)]);
    expect(ends.map(({ status }) => status)).toEqual(['fulfilled', 'rejected']);
    expect(known.documents('p').map(({ pieces }) => pieces)).toEqual([6000, 0]);
  });
});

describe('a search', () => {
  const vocabulary = ['ant', 'bee', 'cat', 'dog', 'elk', 'fox'];
  const sentence = fc.array(fc.constantFrom(...vocabulary), { minLength: 1, maxLength: 6 });

  test('finds the five nearest, the nearest first, and nothing that has nothing in common', async () => {
    const property = fc.asyncProperty(
      fc.array(sentence, { minLength: 1, maxLength: 12 }),
      sentence,
      async (said, asked) => {
        // Words of each piece alone count: its name and heading would be in all of them.
        const model = wordCounter();
        const vectorOf = (text: string) => model.vectorOf(text.replace(/^.*\n\n# \n/, ''));
        const embed: EmbeddingModel['embed'] = async (texts) => texts.map(vectorOf);
        await index(put('a.md', said.map((one) => `# \n${one.join(' ')}\n`).join('')), { ...model, embed });
        const found = await search(asked.join(' '), { model: { ...model, embed } });
        const cosine = (text: string) => {
          const [a, b] = [vectorOf(text), vectorOf(asked.join(' '))];
          const dot = (x: Float32Array, y: Float32Array) => x.reduce((sum, v, n) => sum + v * (y[n] ?? 0), 0);
          return dot(a, b) / Math.sqrt(dot(a, a) * dot(b, b));
        };
        const scores = said.map((one) => cosine(one.join(' '))).filter((score) => score > 0);
        const best = scores.sort((a, b) => b - a).slice(0, 5);
        const got = found.map(({ text }) => cosine(text.replace('# \n', '')));
        expect(got).toHaveLength(best.length);
        for (const [n, score] of best.entries()) expect(got[n]).toBeCloseTo(score, 4);
      },
    );
    await fc.assert(property, { numRuns: 200 });
  });

  test('finds nothing that points the other way', async () => {
    const id = put('a.txt', 'apple');
    await index(id, answering(Float32Array.of(-1, 0)));
    expect(await search('x', { model: answering(Float32Array.of(1, 1)) })).toEqual([]);
    expect(await search('x', { model: answering(Float32Array.of(-1, 1)) })).toHaveLength(1);
  });

  test('loads vectors once, and forgets those that were not used for ten minutes', async () => {
    jest.useFakeTimers({ doNotFake: ['setImmediate', 'nextTick', 'queueMicrotask'] });
    try {
      await addIndexed('a.txt', 'apple');
      expect(await sources('apple')).toEqual(['a.txt']);
      database.exec('UPDATE pieces SET vector = zeroblob(length(vector))');
      for (const _ of [1, 2]) {
        jest.advanceTimersByTime(599_999);
        expect(await sources('apple')).toEqual(['a.txt']);
      }
      jest.advanceTimersByTime(600_000);
      expect(await sources('apple')).toEqual([]);
    } finally {
      jest.useRealTimers();
    }
  });

  test('lets others have their turns while it loads vectors, and loads them anew if they change meanwhile', async () => {
    await addIndexed('a.md', '# a\n\napple\n\n'.repeat(1100));
    const turns: string[] = [];
    const embed: EmbeddingModel['embed'] = async (...asked) => {
      const vectors = await words.embed(...asked);
      // What is loaded after the model has answered, too.
      await addIndexed('c.txt', 'pear');
      setImmediate(() => {
        turns.push('other');
        known.remove(only()?.id ?? '');
        addIndexed('b.txt', 'apple');
      });
      return vectors;
    };
    const found = await search('apple', { model: { ...words, embed } });
    turns.push('found');
    expect(turns).toEqual(['other', 'found']);
    expect(found.map(({ source }) => source)).toEqual(['b.txt']);
  });

  test('is refused if documents were indexed with another model, before it is asked', async () => {
    await addIndexed('a.txt', 'apple');
    const other = wordCounter('words/2');
    const refused =
      'The embedding model is words/2, but documents were indexed with words/1. Index all documents again.';
    await expect(search('apple', { model: other })).rejects.toThrow(refused);
    expect(other.asked).toEqual([]);
    await index(put('b.txt', 'banana'), other);
    await expect(search('apple', { model: other })).rejects.toThrow(refused);
    await index(only()?.id ?? '', other);
    expect(await search('apple', { model: other })).toHaveLength(1);
  });

  test('is refused if the model has other dimensions than before', async () => {
    await addIndexed('a.txt', 'apple');
    const narrow = answering(Float32Array.of(1, 1));
    await expect(search('apple', { model: narrow })).rejects.toThrow('has changed its dimensions');
    await index(put('b.txt', 'banana'), narrow);
    await expect(search('apple')).rejects.toThrow('has changed its dimensions');
  });

  test('takes the first 2,000 characters of a question', async () => {
    await addIndexed('a.txt', 'apple');
    await search(`apple ${'😀'.repeat(2000)}`);
    expect(words.asked.at(-1)?.texts).toEqual([`apple ${'😀'.repeat(997)}`]);
  });

  test('answers from the documents as they are when the model has answered', async () => {
    await addIndexed('a.txt', 'apple old');
    const embed: EmbeddingModel['embed'] = async (texts, purpose, signal) => {
      await addIndexed('a.txt', 'apple new');
      return words.embed(texts, purpose, signal);
    };
    expect(await search('apple', { model: { ...words, embed } })).toEqual([
      { text: 'apple new', source: 'a.txt' },
    ]);
  });
});

test('a change by another process is seen at the next search', async () => {
  const file = settingsFile();
  const [one, two] = [file.tables(), file.tables()];
  try {
    addProject(one, 'p');
    const [here, there] = [knowledge(one), knowledge(two)];
    const texts = async () => (await search('apple', { of: here })).map(({ text }) => text);
    expect(await texts()).toEqual([]);
    const id = there.put('p', { name: 'a.txt', bytes: Buffer.from('apple') });
    await there.index(id, words, { signal });
    expect(await texts()).toEqual(['apple']);
    there.put('p', { name: 'a.txt', bytes: Buffer.from('apple pie') });
    await there.index(id, words, { signal });
    expect(await texts()).toEqual(['apple pie']);
    there.remove(id);
    expect(await texts()).toEqual([]);
  } finally {
    file.remove();
  }
});

describe('a text that is split', () => {
  const LINES = [
    ...[
      '# A',
      '## B  ##',
      '###### Deep',
      '####### seven',
      '#',
      '#no',
      'Title',
      '===',
      '---',
      '- item',
      '> quote',
    ],
    ...[
      '```',
      '```js',
      '````',
      '~~~',
      '   ~~~~',
      '    ```',
      '``` a`b',
      'some words. And more',
      'word',
      '',
      '',
      '  ',
    ],
    ...[
      '😀😀😀😀',
      'ein sehr langer Satz ohne Ende und noch weiter',
      'x'.repeat(50),
      '文字。文字。文字。',
      '\u2028',
    ],
  ];
  const texts = fc
    .array(fc.tuple(fc.constantFrom(...LINES), fc.constantFrom('\n', '\n', '\r\n', ' ', '')), {
      maxLength: 40,
    })
    .map((lines) => lines.flat().join(''));

  test('the pieces, joined, are the text, and none is too long, empty or cut inside a character', () => {
    fc.assert(
      fc.property(texts, fc.boolean(), fc.integer({ min: 2, max: 90 }), (text, isMarkdown, max) => {
        const pieces = split(text, { isMarkdown, max }).map((piece) => piece.text);
        expect(pieces.join('')).toBe(text);
        expect(pieces.filter((piece) => piece.length > max || piece === '' || !piece.isWellFormed())).toEqual(
          [],
        );
      }),
      { numRuns: 1000 },
    );
  });

  /** Blocks of a document. The number makes each one unlike the others. */
  const blocks = fc.array(
    fc.oneof(
      {
        weight: 2,
        arbitrary: fc.record({ level: fc.integer({ min: 1, max: 6 }), isUnderlined: fc.boolean() }),
      },
      fc.record({ words: fc.integer({ min: 1, max: 12 }) }),
      fc.record({ lines: fc.integer({ min: 0, max: 5 }), fence: fc.constantFrom('```', '~~~~', '  ```') }),
    ),
    { maxLength: 30 },
  );

  /** The text of blocks, and for each paragraph and code where it stands and the headings above it. */
  function written(list: typeof blocks extends fc.Arbitrary<infer T> ? T : never) {
    let text = '';
    const path: (string | undefined)[] = [];
    const parts: { from: number; to: number; heading: string; isFence: boolean }[] = [];
    for (const [n, block] of list.entries()) {
      const from = text.length;
      if ('level' in block) {
        const isUnderlined = block.isUnderlined && block.level <= 2;
        const line = isUnderlined ? (block.level === 1 ? '\n=====' : '\n--') : '';
        text += `${isUnderlined ? '' : `${'#'.repeat(block.level)} `}Title ${n}${line}\n\n`;
        path.length = block.level - 1;
        path[block.level - 1] = `Title ${n}`;
        continue;
      }
      const isFence = 'fence' in block;
      text += isFence
        ? `${block.fence}\n${`# ${n}\n\n`.repeat(block.lines)}${block.fence}`
        : Array.from({ length: block.words }, () => `word${n}`).join(' ');
      parts.push({ from, to: text.length, heading: path.filter(Boolean).join(' › '), isFence });
      text += '\n\n';
    }
    return { text, parts };
  }

  function placed(text: string, isMarkdown: boolean, max: number) {
    let to = 0;
    return split(text, { isMarkdown, max }).map((piece) => {
      const from = to;
      to += piece.text.length;
      return { ...piece, from, to };
    });
  }

  test('a piece has the headings above it, and code that is short enough is not cut', () => {
    fc.assert(
      fc.property(blocks, fc.integer({ min: 40, max: 120 }), (list, max) => {
        const { text, parts } = written(list);
        const pieces = placed(text, true, max);
        for (const { from, to, heading, isFence } of parts) {
          const touched = pieces.filter((piece) => piece.from < to && piece.to > from);
          expect([...new Set(touched.map((piece) => piece.heading))]).toEqual([heading]);
          if (isFence && to + 2 - from <= max) expect(touched).toHaveLength(1);
        }
      }),
      { numRuns: 1000 },
    );
  });

  test('a paragraph of plain text that is short enough is not cut', () => {
    fc.assert(
      fc.property(blocks, (list) => {
        const { text, parts } = written(list.filter((block) => 'words' in block));
        const pieces = placed(text, false, 90);
        for (const { from, to } of parts.filter((part) => part.to + 2 - part.from <= 90))
          expect(pieces.filter((piece) => piece.from < to && piece.to > from)).toHaveLength(1);
      }),
    );
  });

  test('begins a piece at each heading, and keeps headings without text with what follows', () => {
    const text = '# Leave\n\n## Parental\n\nTwelve weeks.\n\n### How\nAsk us.\n## Sick\nStay at home.\n';
    expect(split(text, { isMarkdown: true })).toEqual([
      { heading: 'Leave › Parental', text: '# Leave\n\n## Parental\n\nTwelve weeks.\n\n' },
      { heading: 'Leave › Parental › How', text: '### How\nAsk us.\n' },
      { heading: 'Leave › Sick', text: '## Sick\nStay at home.\n' },
    ]);
    expect(split(text, { isMarkdown: false })).toEqual([{ heading: '', text }]);
  });

  test('begins with its heading, also where its first paragraph is too long', () => {
    const pieces = split('# T\n\none two three four five six', { isMarkdown: true, max: 20 });
    expect(pieces.map((piece) => piece.text)).toEqual(['# T\n\none two three ', 'four five six']);
  });

  test('is not cut in code that follows a line directly', () => {
    const pieces = split('one two three:\n```\n# four\n```\nfive', { isMarkdown: true, max: 20 });
    expect(pieces.map((piece) => piece.text)).toEqual(['one two three:\n', '```\n# four\n```\nfive']);
  });

  test('takes neither front matter nor a table or list for a heading', () => {
    const text = '---\ntitle: x\n---\n\n| a |\n---\n\n- b\n---\n';
    expect(split(text, { isMarkdown: true })).toEqual([{ heading: '', text }]);
  });

  test('is cut at the end of a line, a sentence or a word rather than inside one', () => {
    const pieces = (text: string, max: number) =>
      split(text, { isMarkdown: false, max }).map((piece) => piece.text);
    expect(pieces('one two\nthree four five', 16)).toEqual(['one two\nthree ', 'four five']);
    expect(pieces('one two th\nree four five', 16)).toEqual(['one two th\n', 'ree four five']);
    expect(pieces('A first one. And a second', 20)).toEqual(['A first one. ', 'And a second']);
  });

  test('has titles of at most 100 characters in the path', () => {
    const [piece] = split(`# ${'😀'.repeat(200)}\nx`, { isMarkdown: true });
    expect(piece?.heading).toBe('😀'.repeat(50));
  });

  test.each([
    ['one line without a space', 'x'.repeat(1_000_000)],
    ['headings without text', '# \n'.repeat(300_000)],
    ['headings with text', '## a\nb\n'.repeat(140_000)],
    ['a heading of spaces and hashes', `# ${' #'.repeat(500_000)}`],
    ['backticks', '`'.repeat(1_000_000)],
    ['fences that nothing closes', '```\n````\n'.repeat(110_000)],
    ['dashes', `a\n${'-'.repeat(999_000)}x`],
    ['indented headings', '    # a\n\n'.repeat(110_000)],
  ])('can be 1 MB of %s', (_, text) => {
    const pieces = split(text, { isMarkdown: true });
    expect(pieces.map((piece) => piece.text).join('') === text).toBe(true);
    expect(Math.max(...pieces.slice(0, 1000).map((piece) => piece.text.length))).toBeLessThanOrEqual(
      MAX_CHARACTERS,
    );
  });
});
