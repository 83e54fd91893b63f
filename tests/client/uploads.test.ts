import { afterEach, describe, expect, test } from '@jest/globals';
import { createChannel } from '../../src/client/channel/create-channel.ts';
import {
  type ChannelStage,
  OTHER_USER,
  refuseUnhandledRejections,
  startDemoStage,
  USER,
} from '../harness/clients/channels.ts';
import { heldCalls } from '../harness/clients/held-calls.ts';
import { until } from '../harness/clock/until.ts';

refuseUnhandledRejections();

let stage: ChannelStage | undefined;
afterEach(() => stage?.close());

/** A channel with an upload whose answer is held. */
async function uploading(operations: string) {
  stage = await startDemoStage('echo', { OPERATIONS: operations });
  const calls = heldCalls();
  const client = await stage.signedIn({ fetch: calls.fetch });
  const channel = createChannel(client);
  const leave = channel.subscribe(() => {});
  await until(() => channel.getSnapshot().session?.user.name === USER.name);
  const release = calls.hold('/blob');
  const errors: string[] = [];
  const part = channel.upload(new File(['text'], 'a.txt'), { onError: ({ code }) => errors.push(code) });
  await until(() => calls.called.some((address) => address.endsWith('/blob')));
  return { client, channel, release, part, errors, leave };
}

describe('a file whose upload ends', () => {
  test('is a part for its conversation', async () => {
    const { part, release, leave } = await uploading('message,files');
    release();
    expect(await part).toMatchObject({ type: 'file', filename: 'a.txt', blobId: expect.any(String) });
    leave();
  });

  test('when its user has left is no part for the next one, and no error', async () => {
    const { client, channel, part, errors, release, leave } = await uploading('message,files');
    await client.signIn(OTHER_USER.name, OTHER_USER.password);
    await until(() => channel.getSnapshot().session?.user.name === OTHER_USER.name);
    release();
    expect(await part).toBeUndefined();
    expect([errors, channel.getSnapshot().error]).toEqual([[], undefined]);
    leave();
  });

  test('when the default channel has begun another conversation is no part for that', async () => {
    const { channel, part, errors, release, leave } = await uploading('message,files');
    const { id } = channel;
    expect(await channel.reset()).toBe(true);
    expect(channel.id).not.toBe(id);
    release();
    expect(await part).toBeUndefined();
    expect(errors).toEqual([]);
    leave();
  });
});
