import { sendData } from './send-data.ts';
import type { ServiceCall } from './service-call.ts';

/** `GET metadata`: the bot's configuration. Some of it is for its makers and not for its users, as in the field. */
export function botMetadata({ res, namespace, botProviderName }: ServiceCall): void {
  sendData(res, {
    namespace,
    botProviderName,
    providerType: 'generic',
    annotations: {
      'demo/title': `The demo's bot ${botProviderName}`,
      'demo/workflow': 'answer',
      'demo/maintainer': 'someone@example.com',
    },
  });
}
