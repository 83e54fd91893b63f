import { startBotService } from '../../../src/service/bot-service.ts';
import { type FakeLoadBalancerOptions, startFakeLoadBalancer } from '../faults/fake-load-balancer.ts';
import { type Alterations, type ServiceRequest, startAlteringService } from '../service/altering-service.ts';
import { type Checked, checkEnvironment, type Row, runCheck } from './check.ts';
import { CANARY, OTHER_USER, startRelay, USER } from './relay.ts';

const PASSWORDS = { CHECK_PASSWORD: CANARY.password, CHECK_OTHER_PASSWORD: CANARY.password };
/** The bot repeats it word by word, which leaves time for what happens during its run. */
const TEXT = 'one two three four five six seven eight nine ten eleven twelve';
/** For a question that must be answered during the run. */
export const LONG_TEXT = `${TEXT} `.repeat(4).trim();
export const AS_USER = ['--user', USER.name];
export const AS_BOTH = [...AS_USER, '--other-user', OTHER_USER.name];

export interface CheckedOperations extends Checked {
  /** The operations' rows, as `state operation says`. */
  readonly operations: readonly string[];
  /** All rows that are problems. */
  readonly problems: readonly Row[];
  /** What the bot service was asked. */
  readonly requests: readonly ServiceRequest[];
}

export interface OperationsSetup {
  readonly args?: readonly string[];
  readonly text?: string;
  readonly service?: Alterations;
  readonly front?: FakeLoadBalancerOptions;
  /** Environment of relay and check. */
  readonly more?: Record<string, string>;
  /** Environment of the relay, and of the check, alone. */
  readonly ofRelay?: Record<string, string>;
  readonly ofCheck?: Record<string, string>;
}

/**
 * Runs the check as two users, through a load balancer, against a relay with every group but sandboxes, and the demo's
 * bot service; closes all. Throws if it has sent more messages than it had announced.
 */
export async function checkOperations(setup: OperationsSetup = {}): Promise<CheckedOperations> {
  const { args = AS_BOTH, text = TEXT, more, ofRelay, ofCheck } = setup;
  const demo = await startBotService({ keys: [CANARY.key], speed: { wordMs: 40 }, limit: 1_000 });
  const service = await startAlteringService(demo.url, setup.service);
  const front = await startFakeLoadBalancer(setup.front);
  const environment = {
    ...{ BOTS: 'demo/echo', PUBLIC_URL: front.url, RESUME_UPSTREAM: 'off' },
    ...{ OPERATIONS: 'message,chat,files,metadata', ...more },
  };
  const relay = await startRelay(service.url, { ...environment, ...ofRelay });
  front.forwardTo(relay.port);
  try {
    const checked = await runCheck(
      ['--through', front.url, '--text', text, ...args],
      checkEnvironment(service.url, { ...environment, ...PASSWORDS, ...ofCheck }),
    );
    const announced = Number(/^Sending up to (\d+) message/.exec(checked.progress)?.[1] ?? 0);
    if (checked.messages > announced) throw new Error(`${announced} announced, ${checked.messages} sent`);
    const { rows } = checked;
    return {
      ...checked,
      operations: rows
        .filter(({ check }) => check === 'operation')
        .map(({ state, about, says }) => `${state} ${about}: ${says}`),
      problems: rows.filter(({ state }) => state === 'problem'),
      requests: service.requests,
    };
  } finally {
    await relay.close();
    await front.close();
    await service.close();
    await demo.close();
  }
}

/** The ids of conversations in the requests, each once. */
export function conversationsIn(requests: readonly ServiceRequest[]): string[] {
  const ids = requests.map(({ url, body }) => {
    const inQuery = new URL(url, 'http://service').searchParams.get('custom_channel_id');
    return inQuery ?? /"customChannelId":"([^"]*)"/.exec(body)?.[1];
  });
  return [...new Set(ids.filter((id) => id !== undefined))];
}
