import { useState } from 'react';
import { DANGER_BUTTON, OTHER_BUTTON } from '../ui/buttons.ts';
import { Modal } from '../ui/Modal.tsx';

interface Props {
  readonly title: string;
  /** Resolves with false if it has failed. */
  readonly onDelete: () => Promise<boolean>;
  readonly onClose: () => void;
}

export function DeleteDialog({ title, onDelete, onClose }: Props) {
  const [state, setState] = useState<'asks' | 'deletes' | 'failed'>('asks');

  async function remove() {
    setState('deletes');
    if (!(await onDelete())) setState('failed');
  }

  return (
    <Modal
      label="Delete this chat?"
      className="m-auto w-[min(26rem,calc(100%-2rem))] rounded-2xl border border-line bg-raised"
      onClose={onClose}
    >
      <div className="p-6">
        <h2 className="text-lg font-semibold">Delete this chat?</h2>
        <p className="pt-2 text-muted">“{title}” is deleted for good.</p>
        {state === 'failed' && (
          <p role="alert" className="pt-3 text-sm text-bad">
            The chat could not be deleted. Try again.
          </p>
        )}
        <div className="flex justify-end gap-3 pt-6">
          <button type="button" className={OTHER_BUTTON} onClick={onClose}>
            Cancel
          </button>
          <button type="button" className={DANGER_BUTTON} disabled={state === 'deletes'} onClick={remove}>
            Delete
          </button>
        </div>
      </div>
    </Modal>
  );
}
