"""Changes of text: HTML to text, normalisation, splitting, functions of your own."""
