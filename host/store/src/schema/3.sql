-- `cause` is the activation of the sequence that a call is a part of. `limits` is a sequence's, as JSON.
ALTER TABLE activations ADD COLUMN cause TEXT;
ALTER TABLE activations ADD COLUMN limits TEXT;
ALTER TABLE running ADD COLUMN cause TEXT;
