import { expect, test } from '@jest/globals';
import { startDemoStage } from '../harness/clients/channels.ts';
import { testClient } from '../harness/clients/test-client.ts';
import { eventOf } from '../harness/service/bot-runs.ts';

async function all(pieces: AsyncIterable<string>): Promise<string[]> {
  const read = [];
  for await (const piece of pieces) read.push(piece);
  return read;
}

/** The text of an answer with these facts. */
function textOf(...facts: readonly object[]): AsyncIterable<string> {
  const answer = async () => {
    const headers = { 'Content-Type': 'text/event-stream' };
    return new Response(facts.map((fact) => eventOf(fact)).join(''), { headers });
  };
  return testClient({ namespace: 'a', botProviderName: 'b', fetch: answer }).send('Hello').text;
}
const start = (messageId: string) => ({ messageStart: { message: { messageId } } });
const say = (text: string, messageId?: string) => ({ messageDelta: { message: { text, messageId } } });
const whole = (text: string, messageId?: string) => ({ messageComplete: { message: { text, messageId } } });

test('the text of an answer comes piece by piece', async () => {
  const stage = await startDemoStage('echo');
  try {
    const client = await stage.signedIn();
    expect(await all(client.send('Hello').text)).toEqual(['You', ' said:', ' Hello']);
  } finally {
    await stage.close();
  }
});

test('each piece comes once, also if the message begins again, or comes as a whole', async () => {
  const again = [start('one'), say('You', 'one'), start('one'), say('You', 'one'), say(' are', 'one')];
  expect(await all(textOf(...again, whole('You are here.', 'one')))).toEqual(['You', ' are', ' here.']);
  expect(await all(textOf(whole('All at once.')))).toEqual(['All at once.']);
});

test('several messages of one answer are paragraphs', async () => {
  const pieces = textOf(say('One', '1'), say('.', '1'), whole('One.', '1'), say('Two', '2'), say('.', '2'));
  expect((await all(pieces)).join('')).toBe('One.\n\nTwo.');
});

test('a text that the bot changes stays as it was read', async () => {
  expect(await all(textOf(say('You'), whole('Nobody'), say(' is')))).toEqual(['You']);
});

test('an error of the run is thrown after the pieces before it', async () => {
  const pieces: string[] = [];
  const read = async () => {
    const text = textOf(say('You'), { runError: { error: { message: 'No more.', code: 'broken' } } });
    for await (const piece of text) pieces.push(piece);
  };
  await expect(read()).rejects.toMatchObject({ name: 'RelayError', message: 'No more.', code: 'broken' });
  expect(pieces).toEqual(['You']);
});

test('an answer is read once, as its text or as its events', async () => {
  const text = textOf(say('You'));
  await all(text);
  await expect(all(text)).rejects.toThrow('An answer can be read once.');
});
