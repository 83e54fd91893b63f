import { startBotService } from '../../../src/service/bot-service.ts';
import { type FakeLoadBalancerOptions, startFakeLoadBalancer } from '../faults/fake-load-balancer.ts';
import { type Alter, type ServiceRequest, startAlteringService } from '../service/altering-service.ts';
import { type Checked, checkEnvironment, runCheck } from './check.ts';
import { CANARY, startRelay, type TestRelay, USER } from './relay.ts';

/** A relay behind a load balancer and in front of the demo's bot service, and the check of it. */
export interface Deployment extends FakeLoadBalancerOptions {
  /** Arguments of the check, without its text; it signs in as a user by default. */
  readonly args?: readonly string[];
  /** The text of the check, which the bot repeats with a pause before each word; one word by default. */
  readonly text?: string;
  /** Changes what the bot service gets and answers. */
  readonly alter?: Alter;
  /** Environment of relay and check. */
  readonly more?: Record<string, string>;
  /** Environment of the relay, and of the check, alone. */
  readonly ofRelay?: Record<string, string>;
  readonly ofCheck?: Record<string, string>;
  /** Makes environments that depend on the address of the load balancer. */
  readonly environments?: (origin: string) => Promise<Pick<Deployment, 'more' | 'ofRelay' | 'ofCheck'>>;
  /** Called before the check. */
  readonly before?: (relay: TestRelay) => Promise<unknown>;
}

export interface CheckedDeployment extends Checked {
  /** The address of the load balancer. */
  readonly origin: string;
  readonly logs: TestRelay['logs'];
  /** What the bot service was asked. */
  readonly requests: readonly ServiceRequest[];
}

/** Starts a deployment, runs the check through its load balancer, and closes all. */
export async function checkDeployment(setup: Deployment = {}): Promise<CheckedDeployment> {
  const { args = ['--user', USER.name], text = 'Hi', alter } = setup;
  const speed = { wordMs: 40, silenceMs: 800 };
  const demo = await startBotService({ keys: [CANARY.key], limit: 1_000, speed });
  const service = await startAlteringService(demo.url, alter);
  const front = await startFakeLoadBalancer(setup);
  const { more, ofRelay, ofCheck } = { ...setup, ...(await setup.environments?.(front.url)) };
  const environment = { BOTS: 'demo/echo', PUBLIC_URL: front.url, ...more };
  const relay = await startRelay(service.url, { ...environment, ...ofRelay });
  front.forwardTo(relay.port);
  try {
    await setup.before?.(relay);
    const passwords = { CHECK_PASSWORD: CANARY.password, CHECK_OTHER_PASSWORD: CANARY.password };
    const checked = await runCheck(
      ['--through', front.url, '--text', text, ...args],
      checkEnvironment(service.url, { ...environment, ...passwords, ...ofCheck }),
    );
    return { ...checked, origin: front.url, logs: relay.logs, requests: service.requests };
  } finally {
    await relay.close();
    await front.close();
    await service.close();
    await demo.close();
  }
}
