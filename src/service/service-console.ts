import type { Admission } from './admit-call.ts';
import { type TriedAnswer, triedAnswer } from './console/tried-answer.ts';
import { testConnection } from './models/connection-test.ts';
import { embeddingModelOf } from './project-models.ts';
import type { ServiceState } from './service-state.ts';
import { PASSWORD_HASH } from './settings/settings.ts';
import { SettingsError } from './settings/settings-error.ts';

/** Where the console listens. */
export interface ConsoleAddress {
  readonly host: string;
  readonly port: number;
  /** Its origin as browsers see it, if that is another one. */
  readonly publicUrl?: URL | undefined;
}

export interface ServiceConsole {
  readonly url: URL;
  /** Where it listens. */
  readonly port: number;
  /** The link that signs in once; none if the console listens beyond this machine. */
  readonly signInLink: URL | undefined;
  close(): Promise<void>;
}

interface Parts extends Pick<ServiceState, 'settings' | 'knowledge'> {
  readonly brainOf: Admission['brainOf'];
  readonly onFault: (error: unknown) => void;
}

/**
 * Starts the console of a service. Its pages are loaded only now.
 * @throws SettingsError if it would be reached from other machines and has no password; the system's error if the
 * address cannot be used
 */
export async function startServiceConsole(
  address: ConsoleAddress,
  { settings, knowledge, brainOf, onFault }: Parts,
): Promise<ServiceConsole> {
  const { needsPassword, startConsole } = await import('./console/console.ts');
  const passwordHash = () => settings.consoleValue(PASSWORD_HASH);
  if (needsPassword(address.host) && passwordHash() === undefined)
    throw new SettingsError(
      'SERVICE_CONSOLE_HOST is not a loopback address, and the console has no password. Set one with bot-relay service password, and start again.',
    );
  return startConsole({
    ...address,
    ...{ settings, knowledge, testConnection, passwordHash, onFault },
    embeddingModel: (projectId) => embeddingModelOf(settings, projectId),
    async tryBot({ projectId, namespace, name }, text, signal): Promise<TriedAnswer> {
      const brain = brainOf(projectId, namespace, name);
      return brain ? triedAnswer(brain, text, signal) : { text: '', problem: 'There is no such bot.' };
    },
  });
}
