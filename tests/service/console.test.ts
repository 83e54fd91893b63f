import { afterEach, beforeEach, describe, expect, test } from '@jest/globals';
import { hashPassword, QUICK } from '../../src/authenticate/password/password-hash.ts';
import { secret } from '../../src/secret.ts';
import { scriptedBrain } from '../../src/service/brains/scripted.ts';
import type { Brain } from '../../src/service/brains/steps.ts';
import { triedAnswer } from '../../src/service/console/tried-answer.ts';
import type { Bot } from '../../src/service/settings/bot.ts';
import { PASSWORD_HASH } from '../../src/service/settings/settings.ts';
import { SettingsError } from '../../src/service/settings/settings-error.ts';
import { until } from '../harness/clock/until.ts';
import {
  answering,
  filesForm,
  readable,
  startTestConsole,
  type TestConsole,
  type TestConsoleOptions,
  type Visitor,
} from '../harness/service/console.ts';

const HOSTILE = `"'><script>alert(1)</script><img src=x onerror=alert(1)>&amp;\${1}`;
const PROVIDER_KEY = 'provider-key-that-nobody-may-see-again-wxyz';

let console: TestConsole;
let administrator: Visitor;
let settings: TestConsole['settings'];
/** Starts a console, to which nobody has signed in. */
async function begin(options: TestConsoleOptions = {}): Promise<TestConsole> {
  const started = await startTestConsole(options);
  await console?.close();
  console = started;
  settings = console.settings;
  return console;
}
async function start(options: TestConsoleOptions = {}): Promise<void> {
  administrator = await (await begin(options)).administrator();
}
beforeEach(() => start());
afterEach(async () => {
  await console.close();
  expect(console.faults).toEqual([]);
});

const projectNames = () => settings.projects().map(({ name }) => name);
const page = async (path: string) => (await administrator.get(path)).body;
const asks = async (path: string) => {
  expect([path, await page(path)]).toEqual([path, expect.stringContaining('class="danger"')]);
};

describe('projects', () => {
  test('are created, renamed and deleted, which asks', async () => {
    const created = await administrator.submit('/projects', { name: 'Shop' });
    const path = created.path.replace('?done=created', '');
    expect(created.body).toContain('Created.');
    expect(readable(await page('/'))).toMatch(/Projects .*Shop .*demo/);
    await administrator.submit(`${path}/rename`, { name: 'Shop & Co' });
    expect(projectNames()).toEqual(['Shop & Co', 'demo']);
    await asks(`${path}/delete`);
    expect(settings.projects()).toHaveLength(2);
    expect((await administrator.submit(`${path}/delete`)).path).toBe('/?done=deleted');
    expect(projectNames()).toEqual(['demo']);
    expect((await administrator.get(path)).status).toBe(404);
    const refused = await administrator.fail('/projects', { name: 'demo' });
    expect(refused).toMatch(/id="create-name-fault">[^<]*already/);
    expect(refused).toContain('value="demo"');
    expect(refused).toContain('<title>Not saved: Projects');
  });

  test('have a cap, and namespaces that no two have', async () => {
    const shop = settings.createProject('Shop');
    await administrator.submit('/projects/demo/cap', { dailyCap: ' 500 ' });
    expect(settings.project('demo')?.dailyCap).toBe(500);
    for (const cap of ['-1', 'many']) {
      const refused = await administrator.fail('/projects/demo/cap', { dailyCap: cap });
      expect(refused).toContain(`value="${cap}"`);
      expect(refused).toMatch(
        /<a href="#cap-dailyCap">A cap .*aria-describedby="cap-dailyCap-hint cap-dailyCap-fault"/s,
      );
    }
    await administrator.submit('/projects/demo/cap', { dailyCap: '' });
    expect(settings.project('demo')?.dailyCap).toBeUndefined();

    await administrator.submit('/projects/demo/namespaces', { name: 'support' });
    for (const name of ['support', 'demo', '', HOSTILE])
      await administrator.fail(`/projects/${shop.id}/namespaces`, { name });
    expect([settings.namespaces('demo'), settings.namespaces(shop.id)]).toEqual([['demo', 'support'], []]);
    await asks('/projects/demo/namespaces/support/delete');
    await administrator.submit('/projects/demo/namespaces/support/delete');
    expect(settings.namespaces('demo')).toEqual(['demo']);
    expect((await administrator.post(`/projects/${shop.id}/namespaces/demo/delete`)).status).toBe(404);
  });
});

describe('App settings', () => {
  const nameOf = (name: string) => settings.keys('demo').find((key) => key.name === name);

  test('create a key and show it; copy it again, disable, enable and delete it, which asks', async () => {
    const created = await administrator.submit('/projects/demo/keys', { name: 'relay' });
    const id = nameOf('relay')?.id ?? '';
    const key = settings.revealKey(id).open();
    const path = `/projects/demo/keys/${id}`;
    expect(created).toMatchObject({ path: `${path}?done=created`, headers: { 'cache-control': 'no-store' } });
    expect(created.body).toContain(`readonly value="${key}"`);
    expect(await page(path)).toContain(`value="${key}"`);
    const list = await page('/projects/demo/keys');
    expect(list).not.toContain(key);
    expect(readable(list)).toMatch(
      /relay State active Created \d{4}-\d\d-\d\d \d\d:\d\d UTC Last used never/,
    );
    expect(settings.projectOfKey(key)).toBe('demo');

    expect((await administrator.submit(`${path}/disable`)).body).toContain('works no more');
    expect(settings.projectOfKey(key)).toBeUndefined();
    expect(readable(await page('/projects/demo/keys'))).toContain('State disabled');
    await administrator.submit(`${path}/enable`);
    expect(settings.projectOfKey(key)).toBe('demo');
    expect(readable(await page('/projects/demo/keys'))).not.toContain('never');
    await asks(`${path}/delete`);
    await administrator.submit(`${path}/delete`);
    expect(settings.keys('demo')).toEqual([]);
    expect((await administrator.get(path)).status).toBe(404);
  });

  test('refuse a second key of a name, and show no key of another project', async () => {
    const shop = settings.createProject('Shop');
    settings.createKey(shop.id, 'relay');
    const id = settings.keys(shop.id)[0]?.id ?? '';
    expect(await administrator.fail(`/projects/${shop.id}/keys`, { name: 'relay' })).toContain(
      'already a key',
    );
    const answers = await Promise.all([
      administrator.get(`/projects/demo/keys/${id}`),
      ...['disable', 'delete', 'nothing'].map((act) =>
        administrator.post(`/projects/demo/keys/${id}/${act}`),
      ),
    ]);
    expect(answers.map(({ status }) => status)).toEqual([404, 404, 404, 404]);
    expect(settings.keys(shop.id)[0]?.isEnabled).toBe(true);
  });
});

describe('AI settings', () => {
  const MODEL = { kind: 'openai', model: 'gpt-5', key: PROVIDER_KEY, windowCharacters: '50000' };
  const path = '/projects/demo/models/completion';

  test('save a model; an empty key stays, unless it would go elsewhere', async () => {
    await administrator.submit(path, MODEL);
    expect(settings.model('demo', 'completion')).toMatchObject({ model: 'gpt-5', windowCharacters: 50_000 });
    expect(readable(await page('/projects/demo/models'))).toContain('A key that ends in wxyz is saved.');
    await administrator.submit(path, { ...MODEL, key: '', model: 'gpt-5-mini' });
    const saved = settings.model('demo', 'completion');
    expect([saved?.model, saved?.key?.open()]).toEqual(['gpt-5-mini', PROVIDER_KEY]);
    const moved = { ...MODEL, key: '', endpoint: 'https://evil.example/v1' };
    expect(await administrator.fail(path, moved)).toMatch(/id="completion-key-fault">Enter the key again/);
    expect(settings.model('demo', 'completion')?.endpoint).toBeUndefined();
    await asks(`${path}/delete`);
    await administrator.submit(`${path}/delete`);
    expect(settings.model('demo', 'completion')).toBeUndefined();
  });

  test('keep what was typed after a fault, but never a key, and name the field', async () => {
    const faults = {
      ...{ endpoint: ['x', HOSTILE], windowCharacters: ['', 'much'], deployment: ['a b'] },
      ...{ apiVersion: ['a b'], model: ['', 'a\nb'], kind: ['', 'constructor', 'voyage'] },
    };
    for (const [field, values] of Object.entries(faults))
      for (const value of values) {
        const refused = await administrator.fail(path, { ...MODEL, [field]: value });
        expect([field, value, refused]).toEqual([
          field,
          value,
          expect.stringContaining(`id="completion-${field}-fault"`),
        ]);
        expect(refused).toContain('name="model"');
        expect(refused).not.toContain(PROVIDER_KEY);
      }
    expect(await administrator.fail(path, { ...MODEL, endpoint: 'x' })).toContain('value="gpt-5"');
    expect(settings.model('demo', 'completion')).toBeUndefined();
  });

  test('test a connection with what is saved, and say what is wrong and what to do', async () => {
    const tested: unknown[] = [];
    await start({
      async testConnection(role, { kind, key, endpoint }) {
        tested.push([role, kind, key?.open(), endpoint]);
        if (role === 'completion') return { ok: true, model: 'gpt-5', ms: 812, tokens: 9 };
        return { ok: false, code: 'X', problem: 'The key was <refused>.', todo: 'Enter another one.' };
      },
    });
    const good = await administrator.post(path, { ...MODEL, test: 'on' });
    expect([good.status, readable(good.body)]).toEqual([
      200,
      expect.stringContaining('Completion model: it works gpt-5 answered in 812 ms. It took 9 tokens.'),
    ]);
    const voyage = { kind: 'voyage', model: 'voyage-4', key: `${PROVIDER_KEY}2`, test: 'on' };
    const bad = await administrator.post('/projects/demo/models/embedding', voyage);
    expect(readable(bad.body)).toContain(
      'Embedding model: the test failed The key was <refused>. Enter another one.',
    );
    expect(tested).toEqual([
      ['completion', 'openai', PROVIDER_KEY, undefined],
      ['embedding', 'voyage', `${PROVIDER_KEY}2`, undefined],
    ]);
    expect(good.body + bad.body).not.toContain(PROVIDER_KEY);
  });
});

describe('bots', () => {
  const BOT = {
    ...{ namespace: 'demo', name: 'assistant', title: 'Helper', temperature: '0.5' },
    ...{ instructions: 'Be brief.\r\nBe kind.', suggestions: 'Hello\r\n\r\n  What can you do? \r\n' },
    ...{ 'tool-clock': 'on', usesKnowledge: 'on' },
  };
  const SAVED: Bot = {
    ...{ namespace: 'demo', name: 'assistant', title: 'Helper', temperature: 0.5 },
    ...{ instructions: 'Be brief.\nBe kind.', suggestions: ['Hello', 'What can you do?'] },
    ...{ tools: ['clock'], usesKnowledge: true },
  };
  const path = '/projects/demo/bots/demo/assistant';

  test('are created, edited and deleted, which asks', async () => {
    const created = await administrator.submit('/projects/demo/bots/new', BOT);
    expect(created.path).toBe(`${path}?done=created`);
    expect(created.body).toContain('<code>/generic/ns/demo/bot-provider/assistant/message/sse</code>');
    expect(settings.bots('demo')).toEqual([SAVED]);
    expect(await administrator.fail('/projects/demo/bots/new', BOT)).toContain('already a bot');
    const sent = { ...BOT, name: 'other', 'tool-clock': 'on', title: 'A new title' };
    const { 'tool-clock': _none, usesKnowledge: _neither, ...less } = sent;
    await administrator.submit(path, { ...less, temperature: '' });
    const edited = {
      ...SAVED,
      title: 'A new title',
      temperature: undefined,
      tools: [],
      usesKnowledge: false,
    };
    expect(settings.bots('demo')).toEqual([edited]);
    await asks(`${path}/delete`);
    expect((await administrator.submit(`${path}/delete`)).path).toBe('/projects/demo/bots?done=deleted');
    expect(settings.bots('demo')).toEqual([]);
    expect((await administrator.get(path)).status).toBe(404);
  });

  test('keep what was typed after a fault, and name the field', async () => {
    settings.saveBot('demo', SAVED);
    settings.createProject('Shop');
    const faults = {
      title: 'x'.repeat(201),
      instructions: 'y'.repeat(200_000),
      suggestions: 'z\n'.repeat(50),
      temperature: '0,5',
    };
    for (const [field, value] of Object.entries(faults)) {
      const refused = await administrator.fail(path, { ...BOT, [field]: value });
      expect([field, refused]).toEqual([field, expect.stringContaining(`id="bot-${field}-fault"`)]);
      expect(refused).toContain(value);
      expect(refused).toMatch(/id="bot-usesKnowledge" [^>]* checked/);
    }
    for (const field of ['namespace', 'name'])
      for (const value of ['nowhere', '', '..', HOSTILE].slice(field === 'name' ? 1 : 0)) {
        const refused = await administrator.fail('/projects/demo/bots/new', { ...BOT, [field]: value });
        expect([field, value, refused]).toEqual([
          field,
          value,
          expect.stringContaining(`id="bot-${field}-fault"`),
        ]);
      }
    expect(settings.bots('demo')).toEqual([SAVED]);
    expect((await administrator.post(path, { instructions: 'y'.repeat(2_000_000) })).status).toBe(413);
  });

  test('can be tried: the whole answer stands below the question, or why there is none', async () => {
    const asked: unknown[] = [];
    await start({
      brainOf(...bot) {
        asked.push(bot);
        return answering((text) =>
          text === 'bad' ? ['Half', 'The model is <busy>.'] : [`${HOSTILE}\n\nBye`],
        );
      },
    });
    settings.saveBot('demo', SAVED);
    const { status, body } = await administrator.post(`${path}/try`, { text: 'How <are> you?' });
    expect([status, readable(body)]).toEqual([200, expect.stringMatching(/How <are> you\? .*Answer .*Bye/)]);
    expect(body).not.toContain('<script');
    const failed = await administrator.post(`${path}/try`, { text: 'bad' });
    expect(readable(failed.body)).toContain('Answer Half The model is <busy>.');
    expect(asked).toEqual(Array(2).fill(['demo', 'demo', 'assistant']));
  });

  test('a bot that fails while it is tried is a fault of the service, and says nothing of it', async () => {
    const broken = answering(() => {
      throw new Error('a secret of the inside');
    });
    await start({ brainOf: () => broken });
    settings.saveBot('demo', SAVED);
    const { status, body } = await administrator.post(`${path}/try`, { text: 'Hello' });
    expect([status, body]).toEqual([500, expect.not.stringContaining('inside')]);
    expect(console.faults.splice(0)).toEqual([
      expect.objectContaining({ message: 'a secret of the inside' }),
    ]);
  });
});

describe('the answer of a bot that is tried', () => {
  const tried = (name: string, signal = new AbortController().signal) =>
    triedAnswer(scriptedBrain(name, { wordMs: 0, silenceMs: 0 }) as Brain, 'Hello you', signal);

  test('is all that it has said, and the error with which it ended', async () => {
    expect(await tried('demo/echo')).toEqual({ text: 'You said: Hello you' });
    const { text } = await tried('demo/resume');
    expect(text).toBe('This answer has two messages.\n\nThe second breaks off and goes on where it did.');
    expect((await tried('demo/steps')).problem).toBe('The run took more than 30 steps.');
  });

  test('is not waited for once the administrator has left', async () => {
    const left = new AbortController();
    const [early, late] = [tried('demo/slow', AbortSignal.abort()), tried('demo/slow', left.signal)];
    left.abort();
    const given = { text: '', problem: expect.stringContaining('given up') };
    expect([await early, await late]).toEqual([given, given]);
  });
});

describe('knowledge', () => {
  const path = '/projects/demo/knowledge';
  const EMBEDDING = {
    kind: 'openai',
    model: 'embedder',
    windowCharacters: 1000,
    key: secret(PROVIDER_KEY),
  } as const;

  test('files are uploaded and indexed, whose progress is shown; indexed again; and deleted, which asks', async () => {
    const held = Promise.withResolvers<void>();
    await start({
      embeddingModel: () => ({
        model: 'embedder',
        embed: (texts) => held.promise.then(() => texts.map(() => Float32Array.of(0, 1))),
      }),
    });
    const text = '# One\n\nThe first piece.\n\n# Two\n\nThe second piece.\n';
    const progress = await administrator.submit(
      path,
      filesForm(['guide.md', text], ['notes.txt', 'Some notes.']),
    );
    expect(progress.path).toBe(`${path}/progress`);
    expect(progress.body).toContain('<meta http-equiv="refresh" content="2">');
    await until(async () => readable(await page(`${path}/progress`)).includes('guide.md 0 of'));
    expect(readable(await page(`${path}/progress`))).toContain('notes.txt waits for its turn');
    const running = await page(path);
    expect(running).toContain('Follow the indexing');
    expect(running).not.toContain('http-equiv');
    held.resolve();
    await until(async () => (await administrator.get(`${path}/progress`)).status === 303);
    expect(readable(await page(path))).toMatch(
      /guide\.md Size 0\.0 kB Pieces [12] Indexed \d{4}-\d\d-\d\d \d\d:\d\d UTC by embedder .* notes\.txt/,
    );
    const [guide] = console.documents('demo');
    await administrator.submit(`${path}/${guide?.id}/index`);
    await until(async () => (await administrator.get(`${path}/progress`)).status === 303);
    await asks(`${path}/${guide?.id}/delete`);
    await administrator.submit(`${path}/${guide?.id}/delete`);
    expect(console.documents('demo').map(({ name }) => name)).toEqual(['notes.txt']);
    expect((await administrator.post(`${path}/${guide?.id}/index`)).status).toBe(404);
  });

  test('what cannot be indexed is refused or says why, and the rest is indexed', async () => {
    expect(readable(await page(path))).toContain('First set the embedding model at AI settings');
    const unready = readable(await administrator.fail(path, filesForm(['a.md', 'Text.'], ['b.md', 'Text.'])));
    // Once at the top, and once at the field.
    expect(unready.split('Set the embedding model of the project')).toHaveLength(3);
    expect(console.documents('demo')).toEqual([]);
    settings.saveModel('demo', 'embedding', EMBEDDING);
    expect(await administrator.fail(path, filesForm())).toContain('Choose a file.');
    const many = Array.from({ length: 1001 }, () => ['', ''] as const);
    expect((await administrator.post(path, filesForm(...many))).status).toBe(400);
    const hostile = [
      ['../up.md', 'Text.'],
      [`${HOSTILE}.md`, 'Text.'],
      ['image.md', Buffer.from([0xff, 0xd8, 0, 1])],
      ['large.md', 'x'.repeat(2_000_000)],
    ] as const;
    const refused = await administrator.fail(path, filesForm(...hostile, ['good.md', 'Text.']));
    expect(refused.match(/<li><a href="#upload-file">/g)?.length).toBeGreaterThanOrEqual(hostile.length - 1);
    expect(refused).not.toContain('<script');
    await until(async () => (await administrator.get(`${path}/progress`)).status === 303);
    expect(console.documents('demo')).toContainEqual(
      expect.objectContaining({ name: 'good.md', isCurrent: true }),
    );
    const broken = await administrator.post(path, {}, { 'Content-Type': 'multipart/form-data; boundary=x' });
    expect(broken.status).toBe(400);
  });

  test('an indexing stops when its file is deleted, and when the console is closed', async () => {
    const asked: AbortSignal[] = [];
    const embed = (_texts: readonly string[], _purpose: unknown, signal: AbortSignal) => {
      asked.push(signal);
      return new Promise<never>((_resolve, reject) =>
        signal.addEventListener('abort', () => reject(signal.reason)),
      );
    };
    await start({ embeddingModel: () => ({ model: 'embedder', embed }) });
    await administrator.submit(path, filesForm(['a.md', 'Text.'], ['b.md', 'Text.']));
    await until(() => asked.length === 1);
    await administrator.submit(`${path}/${console.documents('demo')[0]?.id}/delete`);
    await until(() => asked.length === 2);
    await console.close();
    expect(asked.map(({ aborted }) => aborted)).toEqual([true, true]);
  });

  test('a provider that fails is told with the file', async () => {
    await start({
      embeddingModel: () => ({
        model: 'embedder',
        embed: () => Promise.reject(new SettingsError('The provider is <away>.')),
      }),
    });
    await administrator.submit(path, filesForm(['a.md', 'Text.']));
    await until(async () => readable(await page(path)).includes('The provider is <away>.'));
  });
});

describe('all pages', () => {
  test('escape hostile values, and none has a provider key, or an API key that was not asked for', async () => {
    const { id } = settings.createProject(HOSTILE);
    settings.addNamespace(id, 'support');
    settings.createKey(id, HOSTILE);
    for (const role of ['completion', 'embedding'] as const)
      settings.saveModel(id, role, {
        ...{ kind: 'openai', model: '"><script>alert(1)</script>', windowCharacters: 5000 },
        key: secret(PROVIDER_KEY),
      });
    settings.saveBot(id, {
      ...{ namespace: 'support', name: 'helper', title: HOSTILE, instructions: `</textarea>${HOSTILE}` },
      ...{ suggestions: [HOSTILE], tools: [], usesKnowledge: false },
    });
    const key = settings.keys(id)[0];
    const text = settings.revealKey(`${key?.id}`).open();
    const seen = new Map<string, string>();
    for (const paths = ['/']; paths.length > 0; ) {
      const path = paths.pop() as string;
      if (seen.has(path)) continue;
      const { status, body } = await administrator.get(path);
      expect([path, status]).toEqual([path, 200]);
      seen.set(path, body);
      for (const [, to = ''] of body.matchAll(/href="(\/[^"]*)"/g))
        if (!to.startsWith('/console.')) paths.push(to);
    }
    expect(seen.size).toBeGreaterThan(15);
    for (const [path, body] of seen) {
      expect([path, body.match(/<script|<img|onerror=alert\(1\)>|"&#39;|&#34;'/g)]).toEqual([path, null]);
      expect([path, body.includes(PROVIDER_KEY)]).toEqual([path, false]);
      expect([path, body.includes(text)]).toEqual([path, path === `/projects/${id}/keys/${key?.id}`]);
    }
    expect(readable(seen.get(`/projects/${id}`) ?? '')).toContain(HOSTILE);
  });
});

const tokenOf = ({ signInLink }: TestConsole) => signInLink?.searchParams.get('token') ?? '';

describe('the link of the start', () => {
  test('signs in once, by a button; the link itself changes nothing', async () => {
    await begin();
    const [first, second] = [console.visitor(), console.visitor()];
    const link = `/sign-in?token=${tokenOf(console)}`;
    expect(console.signInLink?.href).toBe(`${console.url.href}${link.slice(1)}`);
    for (const one of [first, second, first]) {
      const { status, headers, body } = await one.get(link);
      expect([status, headers['set-cookie']]).toEqual([200, undefined]);
      expect(body).toContain('>Sign in</button>');
    }
    const signedIn = await first.post('/sign-in', { token: tokenOf(console) });
    expect(signedIn).toMatchObject({ status: 303, headers: { location: '/' } });
    const [cookie = ''] = signedIn.headers['set-cookie'] ?? [];
    expect(cookie).toMatch(/^bot_relay_console=[\w.-]+; Path=\/; HttpOnly; SameSite=Strict$/);
    expect((await first.get('/')).status).toBe(200);

    expect((await second.get(link)).body).toContain('This link was used already');
    const again = await second.post('/sign-in', { token: tokenOf(console) });
    expect([again.status, again.headers['set-cookie']]).toEqual([403, undefined]);
    expect((await second.get('/')).status).toBe(303);
  });

  test('does not sign in by another token, by none, or by a password that nobody has set', async () => {
    await begin();
    for (const fields of [{ token: `${tokenOf(console)}x` }, { token: '' }, { password: '' }, {}]) {
      const answer = await console.visitor().post('/sign-in', fields);
      expect([fields, answer.status, answer.headers['set-cookie']]).toEqual([fields, 403, undefined]);
    }
    expect((await console.visitor().post('/sign-in', { token: tokenOf(console) })).status).toBe(303);
  });
});

describe('without a session', () => {
  test('a form of very many fields is refused, and not read: that would take seconds', async () => {
    const visitor = (await begin()).visitor();
    const many = Object.fromEntries(Array.from({ length: 1001 }, (_one, n) => [`f${n}`, '']));
    const { status, headers } = await visitor.post('/sign-in', { token: tokenOf(console), ...many });
    expect([status, headers['set-cookie']]).toEqual([400, undefined]);
  });

  test('every page leads to the sign-in, and no form does anything', async () => {
    const visitor = (await begin()).visitor();
    for (const path of ['/', '/projects/demo/keys', '/nothing'])
      expect(await visitor.get(path)).toMatchObject({ status: 303, headers: { location: '/sign-in' } });
    for (const path of ['/projects', '/projects/demo/keys', '/projects/demo/delete'])
      expect([path, (await visitor.post(path, { name: 'mine' })).status]).toEqual([path, 401]);
    expect(projectNames()).toEqual(['demo']);
    expect(console.settings.keys('demo')).toEqual([]);
  });

  test('a cookie that was signed by nobody is none; signing out ends the session', async () => {
    const forged = { Cookie: `bot_relay_console=${'a'.repeat(32)}.${'b'.repeat(43)}` };
    expect((await console.visitor().get('/', forged)).status).toBe(303);
    expect((await administrator.get('/')).status).toBe(200);
    expect((await administrator.submit('/sign-out')).path).toBe('/sign-in');
    expect((await administrator.get('/')).status).toBe(303);
  });
});

describe('pages of other origins', () => {
  test('reach nothing under another host name, as with DNS rebinding', async () => {
    for (const host of ['evil.example', `evil.example:${console.port}`, '127.0.0.1.evil.example', '10.0.0.1'])
      expect([host, (await administrator.get('/', { Host: host })).status]).toEqual([host, 421]);
    for (const host of ['localhost', `127.0.0.1:${console.port}`, '[::1]:4001'])
      expect([host, (await administrator.get('/', { Host: host })).status]).toEqual([host, 200]);
  });

  test('send no form', async () => {
    for (const Origin of ['https://evil.example', 'null', `https://127.0.0.1:${console.port}`])
      for (const more of [{}, { 'Sec-Fetch-Site': 'cross-site' }, { 'Sec-Fetch-Site': 'same-site' }]) {
        const { status } = await administrator.post('/projects', { name: 'theirs' }, { Origin, ...more });
        expect([Origin, more, status]).toEqual([Origin, more, 403]);
      }
    expect(projectNames()).toEqual(['demo']);
  });

  test('neither frame a page, nor keep it, nor run anything in it', async () => {
    for (const path of ['/', '/projects/demo/models', '/sign-in', '/nothing', '/console.css']) {
      const { headers } = await administrator.get(path);
      expect([path, `${headers['content-security-policy']}`.split(';').sort()]).toEqual([
        path,
        [
          ...["base-uri 'none'", "default-src 'none'", "form-action 'self'", "frame-ancestors 'none'"],
          ...["img-src 'self'", "style-src 'self'"],
        ],
      ]);
      expect(headers).toMatchObject({ 'cache-control': 'no-store', 'x-content-type-options': 'nosniff' });
      expect(headers['x-powered-by']).toBeUndefined();
    }
  });
});

describe('on an address that others reach', () => {
  const PASSWORD = 'a long password';
  test('there is no link; the password signs in, and one that is changed does so at once', async () => {
    await expect(startTestConsole({ host: '0.0.0.0' })).rejects.toThrow('bot-relay service password');
    const passwordHash = await hashPassword('an old password', QUICK);
    await begin({ host: '0.0.0.0', passwordHash });
    const visitor = console.visitor();
    expect(console.signInLink).toBeUndefined();
    console.settings.setConsoleValue(PASSWORD_HASH, await hashPassword(PASSWORD, QUICK));
    expect((await visitor.get('/sign-in')).body).toContain('type="password"');
    const wrong = await visitor.fail('/sign-in', { password: 'wrong-password' });
    expect(wrong).toContain('The password is wrong.');
    expect(wrong).not.toContain('wrong-password');
    expect((await visitor.submit('/sign-in', { password: PASSWORD })).status).toBe(200);
  });

  test('a new password ends the sessions that began before it', async () => {
    await begin({ host: '0.0.0.0', passwordHash: await hashPassword(PASSWORD, QUICK) });
    const [visitor, other] = [console.visitor(), console.visitor()];
    for (const one of [visitor, other]) await one.submit('/sign-in', { password: PASSWORD });
    const another = await hashPassword('another long password', QUICK);
    console.settings.setConsoleValue(PASSWORD_HASH, another);
    expect((await visitor.get('/')).status).toBe(303);
    await visitor.submit('/sign-in', { password: 'another long password' });
    expect([(await visitor.get('/')).status, (await other.get('/')).status]).toEqual([200, 303]);
  });

  test('five wrong passwords a minute are too many, also for the right one, and also all at once', async () => {
    await begin({ host: '0.0.0.0', passwordHash: await hashPassword(PASSWORD, QUICK) });
    const signIn = (password: string) => console.visitor().post('/sign-in', { password });
    // The right one gives its place back.
    for (let n = 0; n < 6; n++) expect((await signIn(PASSWORD)).status).toBe(303);
    const statuses = await Promise.all(Array.from('123456789', async (one) => (await signIn(one)).status));
    expect(statuses.sort()).toEqual([422, 422, 422, 422, 422, 429, 429, 429, 429]);
    const right = await signIn(PASSWORD);
    expect([right.status, right.headers['retry-after']]).toEqual([429, '60']);
  });

  test('behind a proxy with TLS, the name, the origin and the cookie are those of the public address', async () => {
    await begin({ publicUrl: new URL('https://console.example/') });
    expect(console.signInLink?.origin).toBe('https://console.example');
    const visitor = console.visitor();
    const signIn = (Origin: string) =>
      visitor.post('/sign-in', { token: tokenOf(console) }, { Host: 'console.example', Origin });
    expect((await signIn('http://console.example')).status).toBe(403);
    const { status, headers } = await signIn('https://console.example');
    expect(status).toBe(303);
    expect(headers['set-cookie']?.[0]).toMatch(
      /^__Host-bot_relay_console=.*; HttpOnly; Secure; SameSite=Strict$/,
    );
    expect(headers['strict-transport-security']).toMatch(/^max-age=\d+$/);
    expect((await visitor.get('/', { Host: 'console.example' })).status).toBe(200);
  });
});
