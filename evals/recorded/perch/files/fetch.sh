# models come from the project share; rsync goes on where it stopped
rsync -a --partial --timeout=30 share:/models/$1/ models/$1/
