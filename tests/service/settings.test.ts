import { statSync, writeFileSync } from 'node:fs';
import { afterEach, beforeEach, describe, expect, jest, test } from '@jest/globals';
import { secret } from '../../src/secret.ts';
import { backUp } from '../../src/service/settings/backup.ts';
import { openDatabase } from '../../src/service/settings/database.ts';
import type { NewModelSettings } from '../../src/service/settings/model-settings.ts';
import { sealer } from '../../src/service/settings/sealed.ts';
import { DEMO, openSettings, type Settings } from '../../src/service/settings/settings.ts';
import { SettingsError } from '../../src/service/settings/settings-error.ts';
import { botWith, SERVICE_SECRET, settingsFile } from '../harness/service/settings-file.ts';

const PROVIDER_KEY = 'sk-provider-key-0123456789';
const OPENAI: NewModelSettings = {
  ...{ kind: 'openai', model: 'gpt-5', key: secret(PROVIDER_KEY), windowCharacters: 100_000 },
};

let file: ReturnType<typeof settingsFile>;
let settings: Settings;
beforeEach(() => {
  file = settingsFile();
  settings = file.open();
});
afterEach(() => {
  jest.useRealTimers();
  file.remove();
});

/** The sentence with which `what` is refused; it must be plain. */
function refusal(act: () => unknown, what?: unknown): string {
  let thrown: unknown;
  try {
    act();
  } catch (error) {
    thrown = error;
  }
  expect([what, thrown]).toEqual([what, expect.any(SettingsError)]);
  const { message } = thrown as SettingsError;
  expect(message).toMatch(/^[A-Z/][^\r\n]{10,200}$/);
  return message;
}

describe('the file of the settings', () => {
  test('holds no key, of the service or of a provider', () => {
    const key = settings.createKey(DEMO, 'shown name').open();
    settings.importKey(DEMO, 'imported', 'imported-key-0123456789');
    settings.saveModel(DEMO, 'completion', OPENAI);
    for (const close of [() => {}, file.close]) {
      close();
      const bytes = file.bytes();
      expect(bytes.includes('shown name')).toBe(true);
      for (const hidden of [key, 'imported-key-0123456789', PROVIDER_KEY, SERVICE_SECRET])
        expect(bytes.includes(hidden)).toBe(false);
    }
    const again = file.open();
    expect(again.keys(DEMO).map(({ id }) => again.revealKey(id).open())).toEqual([
      key,
      'imported-key-0123456789',
    ]);
    expect(again.model(DEMO, 'completion')?.key?.open()).toBe(PROVIDER_KEY);
  });

  test('is refused with another secret in a sentence, and stays good for the right one', () => {
    const key = settings.createKey(DEMO, 'one').open();
    expect(refusal(() => file.open(secret(`${SERVICE_SECRET}!`)))).toContain('SERVICE_SECRET');
    expect(file.open().projectOfKey(key)).toBe(DEMO);
  });

  test('opens a key only where it was sealed', () => {
    const other = settings.createProject('other').id;
    settings.saveModel(DEMO, 'completion', OPENAI);
    settings.saveModel(other, 'completion', { ...OPENAI, key: secret('another-key-0123456789') });
    // Whoever can write the file, but has not the secret, moves a key to where it would be sent elsewhere.
    file.tables().exec(`UPDATE models SET sealed_key =
      (SELECT sealed_key FROM models WHERE project_id = '${DEMO}') WHERE project_id = '${other}'`);
    expect(settings.model(DEMO, 'completion')?.key?.open()).toBe(PROVIDER_KEY);
    expect(refusal(() => settings.model(other, 'completion'))).not.toContain(PROVIDER_KEY);
  });

  test('of a newer version is refused and left as it is, and so is what is no database', () => {
    file.tables().exec('PRAGMA user_version = 99; CREATE TABLE newer (x)');
    expect(refusal(() => file.open())).toMatch(/is of a newer bot-relay \(its tables have version 99\)/);
    expect(settings.projects()).toHaveLength(1);
    const text = `${file.path}.txt`;
    writeFileSync(text, 'This is no database. '.repeat(100));
    expect(refusal(() => openDatabase(text))).toMatch(/cannot be used/);
    expect(refusal(() => openDatabase(`${file.path}/none.db`))).toMatch(/cannot be used/);
  });

  test('is copied while it is in use, and never over another file', () => {
    const key = settings.createKey(DEMO, 'one').open();
    const copy = `${file.path}.copy`;
    backUp(file.path, copy);
    settings.createKey(DEMO, 'two');
    expect(statSync(copy).mode & 0o777).toBe(0o600);
    const database = openDatabase(copy);
    const copied = openSettings(database, sealer(secret(SERVICE_SECRET)));
    expect([copied.keys(DEMO).map(({ name }) => name), copied.projectOfKey(key)]).toEqual([['one'], DEMO]);
    database.close();
    expect(refusal(() => backUp(file.path, copy))).toMatch(/exists already/);
    expect(refusal(() => backUp(file.path, `${copy}/below`))).toMatch(/cannot be written/);
    expect(refusal(() => backUp(`${file.path}.none`, `${copy}.2`))).toMatch(/cannot be opened/);
  });
});

describe('a project', () => {
  test('is there from the start, with the namespace demo, once', () => {
    expect([settings.projects(), settings.namespaces(DEMO)]).toEqual([[{ id: DEMO, name: DEMO }], [DEMO]]);
    settings.deleteProject(DEMO);
    expect(file.open().projects()).toEqual([]);
  });

  test('has a name of its own, which can be changed', () => {
    const { id } = settings.createProject('Parcels');
    expect(refusal(() => settings.createProject('Parcels'))).toMatch(/already/);
    expect(refusal(() => settings.renameProject(id, DEMO))).toMatch(/already/);
    settings.renameProject(id, 'Letters');
    expect(settings.project(id)).toEqual({ id, name: 'Letters' });
    for (const missing of [
      () => settings.renameProject('none', 'x'),
      () => settings.deleteProject('none'),
      () => settings.setDailyCap('none', 1),
      () => settings.addNamespace('none', 'x'),
      () => settings.createKey('none', 'x'),
      () => settings.saveModel('none', 'completion', OPENAI),
    ])
      expect(refusal(missing)).toBe('There is no such project.');
  });

  test('has its namespaces alone, and no bot goes into those of others', () => {
    const { id } = settings.createProject('other');
    expect(refusal(() => settings.addNamespace(id, DEMO))).toMatch(/already/);
    settings.addNamespace(id, 'mine');
    expect(refusal(() => settings.saveBot(id, botWith({ namespace: DEMO })))).toMatch(/none of this project/);
    settings.saveBot(id, botWith({ namespace: 'mine', tools: ['clock'], temperature: 0.2 }));
    const bot = botWith({ namespace: 'mine', title: 'New', suggestions: ['a', 'b'], usesKnowledge: true });
    settings.saveBot(id, bot);
    expect([settings.bots(id), settings.bots(DEMO), settings.bot('mine', 'helper')]).toEqual([
      [bot],
      [],
      bot,
    ]);
  });

  test('takes all with it, and what runs for it is told', () => {
    const gone: unknown[] = [];
    const own = openSettings(
      file.tables(),
      sealer(secret(SERVICE_SECRET)),
      (...what) => void gone.push(what),
    );
    const { id } = own.createProject('other');
    for (const namespace of ['a', 'b']) own.addNamespace(id, namespace);
    own.saveBot(id, botWith({ namespace: 'a' }));
    own.saveModel(id, 'completion', OPENAI);
    const key = own.createKey(id, 'one').open();
    own.countMessage(id);
    refusal(() => own.deleteBot('a', 'none'));
    refusal(() => own.removeNamespace('none'));
    expect(gone).toEqual([]);
    own.deleteBot('a', 'helper');
    own.removeNamespace('b');
    own.deleteProject(id);
    expect(gone).toEqual([[id, 'a', 'helper'], [id, 'b'], [id]]);
    expect([own.namespaces(id), own.model(id, 'completion'), own.projectOfKey(key)]).toEqual([
      [],
      undefined,
      undefined,
    ]);
  });
});

describe('a value that cannot be used is refused in a sentence, and changes nothing', () => {
  const ENDPOINTS = [
    ...[
      '',
      'ftp://models.test',
      'file:///etc/passwd',
      'javascript:alert(1)',
      'models.test',
      '//a.test',
      'http://',
    ],
    ...['https://a.test/\r\nX-Evil: 1', 'https://a.test/\n', ' https://a.test', 'https://a.test/ä'],
    ...['https://me@a.test', 'https://me:pass@a.test', 'https://@a.test', 'https://a.test\\@b.test'],
    ...['https://a.test/#x', 'https://a.test#', 'https://a.test/?key=1', 'https://a.test?'],
    ...['https://a.test:99999', 'https://[::1', `https://a.test/${'x'.repeat(2000)}`],
  ];
  const MODELS: Partial<NewModelSettings>[] = [
    ...ENDPOINTS.map((endpoint) => ({ endpoint })),
    ...['sk-canary\r\nX-Evil: 1', 'sk-canary-ä', ''].map((key) => ({ key: secret(key) })),
    ...[{ model: 'gpt\r\nX: 1' }, { model: '' }, { windowCharacters: 0 }, { windowCharacters: Number.NaN }],
    { kind: 'azure', endpoint: 'https://a.test', deployment: '../x' },
    { kind: 'azure', endpoint: 'https://a.test', apiVersion: '1&x=2' },
    // These need an endpoint; there is none.
    ...[{ kind: 'azure' as const }, { kind: 'openai-compatible' as const }],
    ...[{ kind: 'voyage' as const }, { kind: '__proto__' as 'openai' }],
  ];

  test('of a model', () => {
    for (const own of MODELS) {
      const message = refusal(() => settings.saveModel(DEMO, 'completion', { ...OPENAI, ...own }), own);
      expect(message).not.toMatch(/canary|evil/i);
      expect([own, settings.model(DEMO, 'completion')]).toEqual([own, undefined]);
    }
    const anthropic: NewModelSettings = { ...OPENAI, kind: 'anthropic' };
    expect(refusal(() => settings.saveModel(DEMO, 'embedding', anthropic))).toMatch(/embedding models of/);
    settings.saveModel(DEMO, 'completion', anthropic);
    for (const endpoint of ['http://localhost:11434/v1', 'http://10.0.0.7', 'http://[::1]:8080/']) {
      settings.saveModel(DEMO, 'embedding', { ...OPENAI, endpoint });
      expect(settings.model(DEMO, 'embedding')?.endpoint).toBe(endpoint);
    }
  });

  test('of a bot', () => {
    for (const own of [
      ...[{ instructions: 'x'.repeat(1_048_576) }, { instructions: 'a\0b' }, { instructions: 'a\ud800' }],
      ...[{ title: 'a\r\nb' }, { title: 'x'.repeat(201) }],
      ...[{ suggestions: [''] }, { suggestions: Array<string>(1000).fill('x') }],
      ...[{ temperature: -0.1 }, { temperature: 2.1 }, { temperature: Number.NaN }],
      ...[{ tools: ['shell' as 'clock'] }, { tools: ['clock' as const, 'clock' as const] }],
    ]) {
      refusal(() => settings.saveBot(DEMO, botWith(own)), own);
      expect([own, settings.bots(DEMO)]).toEqual([own, []]);
    }
  });

  test('of names, caps, and keys that are imported', () => {
    for (const name of ['', '.', '..', 'a/b', 'a b', 'ä', 'a\n', 'a%2F', 'x'.repeat(65)]) {
      refusal(() => settings.addNamespace(DEMO, name), name);
      refusal(() => settings.saveBot(DEMO, botWith({ name })), name);
    }
    for (const name of ['', 'a\nb', 'x'.repeat(101), '\ud800']) {
      refusal(() => settings.createProject(name), name);
      refusal(() => settings.createKey(DEMO, name), name);
    }
    for (const cap of [0, -1, 1.5, Number.NaN, 1e12]) refusal(() => settings.setDailyCap(DEMO, cap), cap);
    for (const key of ['', 'a b', 'a\r\nb', 'ä', 'x'.repeat(1001)])
      refusal(() => settings.importKey(DEMO, 'x', key), key);
    const [keys, names, bots] = [settings.keys(DEMO), settings.namespaces(DEMO), settings.bots(DEMO)];
    expect([settings.projects(), keys, names, bots]).toEqual([[{ id: DEMO, name: DEMO }], [], [DEMO], []]);
  });
});

describe('the key of a provider', () => {
  const saved = (own: Partial<NewModelSettings>) => {
    settings.saveModel(DEMO, 'completion', { ...OPENAI, key: undefined, ...own });
    return settings.model(DEMO, 'completion');
  };

  test('stays where none is entered, and goes to no other endpoint or kind', () => {
    settings.saveModel(DEMO, 'completion', OPENAI);
    expect(saved({ model: 'gpt-6' })).toMatchObject({ model: 'gpt-6', keyHint: '6789' });
    expect(settings.model(DEMO, 'completion')?.key?.open()).toBe(PROVIDER_KEY);
    for (const own of [{ endpoint: 'https://evil.test' }, { kind: 'mistral' as const }])
      expect(refusal(() => saved(own))).toMatch(/Enter the key again/);
    expect(settings.model(DEMO, 'completion')).toMatchObject({ model: 'gpt-6', endpoint: undefined });
    settings.removeModel(DEMO, 'completion');
    expect(refusal(() => saved({}))).toMatch(/needs a key/);
    const local = { kind: 'openai-compatible' as const, endpoint: 'http://127.0.0.1:1' };
    expect(saved(local)).toMatchObject({ ...local, key: undefined, keyHint: '' });
  });

  test('is not shown by its last characters if it is short', () => {
    expect(saved({ key: secret('short') })).toMatchObject({ keyHint: '' });
  });
});

describe('an API key', () => {
  test('is in force, and out of it, at once for all that have the file open', () => {
    const other = file.open();
    const key = other.createKey(DEMO, 'one').open();
    const [{ id = '' } = {}] = settings.keys(DEMO);
    expect(settings.projectOfKey(key)).toBe(DEMO);
    other.setKeyEnabled(id, false);
    expect(settings.projectOfKey(key)).toBeUndefined();
    expect(settings.revealKey(id).open()).toBe(key);
    other.setKeyEnabled(id, true);
    expect(settings.projectOfKey(key)).toBe(DEMO);
    other.deleteKey(id);
    expect(settings.projectOfKey(key)).toBeUndefined();
    for (const act of [
      () => settings.deleteKey(id),
      () => settings.revealKey(id),
      () => settings.setKeyEnabled(id, true),
    ])
      expect(refusal(act)).toBe('There is no such key.');
  });

  test('is long, random and never the same, and its name is its own in the project', () => {
    const keys = ['one', 'two'].map((name) => settings.createKey(DEMO, name).open());
    for (const key of keys) expect(key).toMatch(/^brk_[A-Za-z0-9_-]{43}$/);
    expect(new Set(keys).size).toBe(2);
    expect(refusal(() => settings.createKey(DEMO, 'one'))).toMatch(/already a key one/);
    settings.createKey(settings.createProject('other').id, 'one');
  });

  test('notes when it was used, at most once a minute', () => {
    jest.useFakeTimers({ now: Date.parse('2026-03-01T10:00:00Z') });
    const key = settings.createKey(DEMO, 'one').open();
    const used = () => settings.keys(DEMO)[0]?.lastUsedAt?.toISOString();
    expect(used()).toBeUndefined();
    for (const [at, noted] of [
      ['10:00:00', '10:00:00'],
      ['10:00:59', '10:00:00'],
      ['10:01:00', '10:01:00'],
    ]) {
      jest.setSystemTime(Date.parse(`2026-03-01T${at}Z`));
      settings.projectOfKey(key);
      expect(used()).toBe(`2026-03-01T${noted}.000Z`);
    }
    expect(settings.keys(DEMO)[0]?.createdAt.toISOString()).toBe('2026-03-01T10:00:00.000Z');
  });

  test('that is imported again stays as it is, also disabled, and with its project', () => {
    const { id } = settings.importKey(DEMO, 'one', 'key-1');
    settings.setKeyEnabled(id, false);
    expect(settings.importKey(DEMO, 'another name', 'key-1')).toMatchObject({
      id,
      name: 'one',
      isEnabled: false,
    });
    expect(settings.keys(DEMO)).toHaveLength(1);
    const other = settings.createProject('other').id;
    expect(refusal(() => settings.importKey(other, 'one', 'key-1'))).toMatch(/another project/);
  });
});

describe('the cap of messages a day', () => {
  test('is exact for all that have the file open, and counts what came before a change of it', () => {
    const other = file.open();
    settings.setDailyCap(DEMO, 5);
    const taken = () => Array.from({ length: 6 }, (_, at) => (at % 2 ? other : settings).countMessage(DEMO));
    expect(taken()).toEqual([true, true, true, true, true, false]);
    // What was refused did not count.
    settings.setDailyCap(DEMO, 6);
    expect([settings.countMessage(DEMO), settings.countMessage(DEMO)]).toEqual([true, false]);
    settings.setDailyCap(DEMO, 3);
    expect(settings.countMessage(DEMO)).toBe(false);
    settings.setDailyCap(DEMO, undefined);
    expect(taken()).not.toContain(false);
  });

  test('is of each project alone', () => {
    const { id } = settings.createProject('other');
    settings.setDailyCap(id, 1);
    expect([settings.project(id)?.dailyCap, settings.project(DEMO)?.dailyCap]).toEqual([1, undefined]);
    expect([settings.countMessage(id), settings.countMessage(id), settings.countMessage(DEMO)]).toEqual([
      true,
      false,
      true,
    ]);
  });
});
