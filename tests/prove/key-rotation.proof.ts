import { afterAll, describe, expect } from '@jest/globals';
import { secret } from '../../src/secret.ts';
import { testSideBySide } from '../harness/clock/side-by-side.ts';
import { describeWithRedis, startRedis, stopRedis } from '../harness/redis/redis.ts';
import {
  type Deployment,
  deploy,
  keysOfProcess,
  keysOnce,
  stopDeployments,
} from '../harness/relay/key-deployment.ts';
import type { RelayProcess } from '../harness/relay/process.ts';
import { CANARY } from '../harness/relay/relay.ts';
import { setKeyEnabled } from '../harness/service/settings-file.ts';

type Case = readonly [title: string, run: () => Promise<void>];

/** Makes cases for `testSideBySide` run one after another, beside the other ones: they share something. */
function inTurn(cases: readonly Case[]): Case[] {
  let last = Promise.resolve();
  return cases.map(([title, run]) => {
    const inItsTurn = () => {
      last = last.then(run, run);
      return last;
    };
    return [title, inItsTurn];
  });
}

const [OLD, NEW] = [CANARY.key, CANARY.secondKey];
/** The new key of the rotation after that. */
const NEXT = `${NEW}-next`;
const [oldPrint, newPrint, nextPrint] = [OLD, NEW, NEXT].map((key) => secret(key).fingerprint) as [
  ...[string, string, string],
];

afterAll(async () => {
  await stopDeployments();
  stopRedis();
});

function expectNoFailure(endings: readonly string[]): void {
  expect(endings.filter((ending) => ending !== 'answered')).toEqual([]);
}

async function rotate(deployment: Deployment): Promise<void> {
  const { service } = deployment;
  const sending = deployment.keepSending();
  await keysOnce(deployment, ({ [oldPrint]: old }) => Boolean(old?.lastWorked));

  setKeyEnabled(service, NEW, true);
  deployment.putKeys(NEW, OLD);
  await deployment.reloaded(newPrint, oldPrint);
  const worked = await keysOnce(deployment, ({ [newPrint]: fresh }) => Boolean(fresh?.lastWorked));
  expect(worked[newPrint]).toMatchObject({ position: 1, lastRefused: null });
  expect(worked[oldPrint]).toMatchObject({ position: 2, lastRefused: null });

  deployment.putKeys(NEW);
  await deployment.reloaded(newPrint);
  await sending.settled();
  const settledAt = Date.now();
  await keysOnce(
    deployment,
    ({ [newPrint]: fresh }) => Date.parse(fresh?.lastWorked ?? '') > settledAt + 2_000,
  );
  const after = await keysOfProcess(deployment);
  // The old key is no longer used. A time in Redis may be a little late, but not by a second.
  expect(Date.parse(after[oldPrint]?.lastWorked ?? '')).toBeLessThan(settledAt + 1_000);
  expect(after[oldPrint]?.position).toBeNull();

  setKeyEnabled(service, OLD, false);
  await sending.more(4);
  expectNoFailure(await sending.end());
  expect(deployment.relays.map((relay) => relay.stdout()).join()).not.toContain('upstream key rejected');
}

/** The next rotation of a deployment that has the new key alone. */
async function rotateTooEarly(deployment: Deployment): Promise<void> {
  const { service } = deployment;
  const sending = deployment.keepSending();
  deployment.putKeys(NEXT, NEW);
  const refused = await keysOnce(deployment, ({ [nextPrint]: fresh }) => Boolean(fresh?.lastRefused));
  expect(refused[nextPrint]).toMatchObject({ position: 1, lastWorked: null });
  const refusals = () =>
    deployment.relays.map((relay) => relay.stdout().match(/upstream key rejected/g)?.length ?? 0);
  await sending.more(12);
  // At most two for each instance, however many messages there were.
  expect(Math.max(...refusals())).toBeLessThanOrEqual(2);

  setKeyEnabled(service, NEXT, true);
  for (const relay of deployment.relays) relay.signal('SIGHUP');
  await keysOnce(deployment, ({ [nextPrint]: fresh }) => Boolean(fresh?.lastWorked));
  expectNoFailure(await sending.end());
}

async function rotateWithoutRedis(deployment: Deployment): Promise<void> {
  const { service } = deployment;
  const [relay] = deployment.relays as [RelayProcess];
  const sending = deployment.keepSending();
  setKeyEnabled(service, NEW, true);
  deployment.putKeys(NEW, OLD);
  await relay.waitFor(new RegExp(`"keyFingerprint":"${newPrint}","msg":"upstream key accepted"`));
  deployment.putKeys(NEW);
  await deployment.reloaded(newPrint);
  setKeyEnabled(service, OLD, false);
  await sending.more(4);
  expectNoFailure(await sending.end());
  expect(relay.stdout()).not.toContain('upstream key rejected');
}

async function signalWithFiles({ relays, putKeys }: Deployment): Promise<void> {
  const [relay] = relays as [RelayProcess];
  putKeys(NEW, OLD);
  relay.signal('SIGHUP');
  await relay.waitFor(/"files":1,"msg":"reading the files of keys and bots"\}\n[^\n]*"reloaded"/);
}

// The processes of all cases are started at once, and no case waits for another, except where two share relays.
describe('a rotation of keys under constant load', () => {
  // First, so that these cases also run beside those below.
  describeWithRedis('by the runbook, on two instances', () => {
    let deployment: Deployment;
    testSideBySide(
      inTurn([
        [
          'loses no message, and each step shows that the next one is safe',
          async () => {
            deployment = await deploy(2, { REDIS_URL: (await startRedis()).url });
            await rotate(deployment);
          },
        ],
        ['loses no message if the new key is not valid yet', () => rotateTooEarly(deployment)],
      ]),
    );
  });

  const alone: { deployment?: Promise<Deployment>; rotated?: Promise<void> } = {};
  testSideBySide([
    [
      'without Redis: the log of the relay shows each step, and no message is lost',
      () => {
        alone.deployment = deploy(1);
        alone.rotated = alone.deployment.then(rotateWithoutRedis);
        return alone.rotated;
      },
    ],
    [
      'SIGHUP makes the relay read its files at once',
      async () => {
        await alone.rotated;
        await signalWithFiles((await alone.deployment) as Deployment);
      },
    ],
  ]);
});
