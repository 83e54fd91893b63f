import { Component, computed, DestroyRef, inject, signal } from '@angular/core';
import { createBotClient, createChannel, type RelayError, textOf } from 'bot-relay-client';

const client = createBotClient({ baseUrl: '', namespace: 'demo', botProviderName: 'echo' });
const channel = createChannel(client);

/** A whole chat. */
@Component({
  selector: 'app-chat',
  template: `
    @if (chat().session === undefined) {
      <p>{{ chat().error?.message ?? 'One moment …' }}</p>
    } @else if (chat().session === null) {
      <form (submit)="$event.preventDefault(); signIn(name.value, password.value)">
        <label>Name <input #name autocomplete="username" required /></label>
        <label>Password <input #password type="password" autocomplete="current-password" required /></label>
        <button type="submit">Sign in</button>
      </form>
      @if (refused(); as error) {
        <p role="alert">{{ error.message }} {{ error.requestId && 'Request: ' + error.requestId }}</p>
      }
    } @else {
      <ul>
        @for (message of chat().messages; track message.id) {
          <li [attr.data-from]="message.role" [attr.data-state]="message.state">{{ textOf(message) }}</li>
        }
      </ul>
      @if (refused() ?? chat().error; as error) {
        <p role="alert">{{ error.message }} {{ error.requestId && 'Request: ' + error.requestId }}</p>
      }
      <form (submit)="$event.preventDefault(); channel.send(text.value); text.value = ''">
        <label>Message <input #text autocomplete="off" required /></label>
        <button type="submit" [disabled]="isBusy()">Send</button>
        <button type="button" [disabled]="!isBusy()" (click)="channel.stop()">Stop</button>
        <button type="button" (click)="signOut()">Sign out</button>
      </form>
    }
  `,
})
export class Chat {
  protected readonly channel = channel;
  protected readonly textOf = textOf;
  protected readonly chat = signal(channel.getSnapshot());
  protected readonly isBusy = computed(() => !['ready', 'error'].includes(this.chat().status));
  protected readonly refused = signal<RelayError | undefined>(undefined);

  constructor() {
    inject(DestroyRef).onDestroy(channel.subscribe(() => this.chat.set(channel.getSnapshot())));
  }

  protected async signIn(name: string, password: string): Promise<void> {
    this.refused.set(undefined);
    await client.signIn(name, password).catch((error) => this.refused.set(error));
  }

  protected async signOut(): Promise<void> {
    this.refused.set(undefined);
    await client.signOut().catch((error) => this.refused.set(error));
  }
}
